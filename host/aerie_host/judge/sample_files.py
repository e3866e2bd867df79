"""Judging file after file, within a bound of memory that does not depend on how large they are all together.

Each file's bytes come from the disk once: the digest reads them into the page cache, and the tensors are views of it.
Several files are in work at once, since hashing is what takes the time and leaves Python's lock. Held are the files in
work, and of those done some hundred bytes each.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Any

import torch

from aerie_host.folder.sample_file import ERRORS, load
from aerie_host.judge import flaws as sample_flaws
from aerie_host.judge.flaws import DIGEST, READABLE, Examined, Flaw
from aerie_host.report.summaries import LayerStatistics
from aerie_host.report.wording import Texts
from aerie_host.shared.digests import sha256_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from aerie_host.folder.expectation import Contract, Expected

LISTED = 100
# Beyond this many files at once a disk is busy already.
MOST_WORKERS = 16


@dataclasses.dataclass
class Totals:
    """What all files together are."""

    statistics: LayerStatistics
    flaws: dict[str, Texts] = dataclasses.field(
        default_factory=lambda: {name: Texts() for name in sample_flaws.PROPERTIES}
    )
    flawed: set[str] = dataclasses.field(default_factory=set)
    lengths: list[int] = dataclasses.field(default_factory=list)
    trainable: int = 0
    size: int = 0
    untrained: Texts = dataclasses.field(default_factory=Texts)
    twins: Texts = dataclasses.field(default_factory=Texts)
    not_finite: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    _seen: dict[bytes, str] = dataclasses.field(default_factory=dict)

    def add(self, one: Expected, size: int, found: Examined) -> None:
        """Take in one file."""
        for flaw in found.flaws:
            self.flaws[flaw.prop].add(f"{one.file}: {flaw.text}")
            self.flawed.add(one.file)
        room = LISTED - len(self.not_finite)
        for where, row, value in found.not_finite[:room]:
            self.not_finite.append({"file": one.file, "where": where, "row": row, "value": value})
        self.size += size
        if not found.tokens:
            return
        self.lengths.append(found.length)
        self.trainable += found.trainable
        self.statistics.add(found.layers)
        if not found.trainable:
            self.untrained.add(one.file)
        first = self._seen.setdefault(found.tokens, one.file)
        if first != one.file and found.length:
            self.twins.add(f"{one.file} has the tokens of {first}")


def inspect(folder: Path, one: Expected, contract: Contract) -> tuple[int, Examined]:
    """Size in bytes and every flaw of one file."""
    path = folder / one.file
    if not path.is_file():
        return 0, Examined([Flaw(READABLE, "is a folder, wanted a file" if path.is_dir() else "is missing")])
    flaws = []
    try:
        size = path.stat().st_size
        if one.bytes is not None and size != one.bytes:
            flaws.append(Flaw(DIGEST, f"has {size} bytes, the manifest says {one.bytes}"))
        elif one.sha256 and (digest := sha256_file(path)) != one.sha256:
            flaws.append(Flaw(DIGEST, f"sha256 is {digest[:12]}, the manifest says {one.sha256[:12]}"))
        found = sample_flaws.examine(load(path, mapped=True), size, one, contract)
    except OSError as error:
        return 0, Examined([Flaw(READABLE, f"cannot be read: {error.strerror}")])
    except ERRORS as error:
        # Also what torch only finds out when it looks at the numbers of a broken tensor.
        return size, Examined([*flaws, Flaw(READABLE, str(error).splitlines()[0] if str(error) else repr(error))])
    found.flaws = [*flaws, *found.flaws]
    found.layers = [] if flaws else found.layers
    return size, found


def workers() -> int:
    """How many files are in work at once."""
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)))


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def judge_files(folder: Path, expected: Sequence[Expected], contract: Contract, at_once: int = 0) -> Totals:
    """Inspect every file, ``at_once`` of them at the same time (0: as many as there are cores)."""
    totals = Totals(LayerStatistics(contract.labels))
    at_once = at_once or workers()
    waiting: collections.deque[tuple[Expected, concurrent.futures.Future[tuple[int, Examined]]]] = collections.deque()
    with _one_thread_each(), concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for one in expected:
            waiting.append((one, pool.submit(inspect, folder, one, contract)))
            # The next ones wait in the queue, so that no worker does.
            if len(waiting) > 2 * at_once:
                done, future = waiting.popleft()
                totals.add(done, *future.result())
        for done, future in waiting:
            totals.add(done, *future.result())
    return totals

"""Judge all files, several at a time. The memory needed does not depend on the size of the folder.

The disk reads each file once: hashing brings it into the page cache, and the tensors are views of the cache. Several
files are judged at once, because most of the time goes into hashing, which releases Python's lock. Memory holds the
files that are being judged, and some hundred bytes for each judged one.
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
from aerie_host.judge.examine import examine
from aerie_host.judge.flaws import DIGEST, PROPERTIES, READABLE, Examined, Flaw
from aerie_host.report.summaries import LayerStatistics
from aerie_host.report.wording import Texts
from aerie_host.shared.digests import sha256_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from aerie_host.judge.expectation import Expectation, JudgedFile

LISTED = 100
# More files at once would not read faster: the disk is busy.
MOST_WORKERS = 16


@dataclasses.dataclass
class Totals:
    """Numbers and flaws of all files together."""

    statistics: LayerStatistics
    flaws: dict[str, Texts] = dataclasses.field(default_factory=lambda: {name: Texts() for name in PROPERTIES})
    flawed: set[str] = dataclasses.field(default_factory=set)
    lengths: list[int] = dataclasses.field(default_factory=list)
    trainable: int = 0
    size: int = 0
    untrained: Texts = dataclasses.field(default_factory=Texts)
    twins: Texts = dataclasses.field(default_factory=Texts)
    not_finite: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    _seen: dict[bytes, str] = dataclasses.field(default_factory=dict)

    def add(self, file: JudgedFile, size: int, found: Examined) -> None:
        """Add one file."""
        for flaw in found.flaws:
            self.flaws[flaw.prop].add(f"{file.name}: {flaw.text}")
            self.flawed.add(file.name)
        room = LISTED - len(self.not_finite)
        for where, row, value in found.not_finite[:room]:
            self.not_finite.append({"file": file.name, "where": where, "row": row, "value": value})
        self.size += size
        if not found.tokens:
            return
        self.lengths.append(found.length)
        self.trainable += found.trainable
        self.statistics.add(found.layers)
        if not found.trainable:
            self.untrained.add(file.name)
        first = self._seen.setdefault(found.tokens, file.name)
        if first != file.name and found.length:
            self.twins.add(f"{file.name} has the tokens of {first}")


def inspect(folder: Path, file: JudgedFile, expectation: Expectation) -> tuple[int, Examined]:
    """Size of one file in bytes, and every flaw of it."""
    path = folder / file.name
    if not path.is_file():
        return 0, Examined([Flaw(READABLE, "is a folder, wanted a file" if path.is_dir() else "is missing")])
    flaws, record = [], file.record
    try:
        size = path.stat().st_size
        if record is not None and size != record.bytes:
            flaws.append(Flaw(DIGEST, f"has {size} bytes, the manifest says {record.bytes}"))
        elif record is not None and (digest := sha256_file(path)) != record.sha256:
            flaws.append(Flaw(DIGEST, f"sha256 is {digest[:12]}, the manifest says {record.sha256[:12]}"))
        found = examine(load(path, mapped=True), size, record, expectation)
    except OSError as error:
        return 0, Examined([Flaw(READABLE, f"cannot be read: {error.strerror}")])
    except ERRORS as error:
        # Some damage shows only when the numbers of a tensor are read.
        return size, Examined([*flaws, Flaw(READABLE, str(error).splitlines()[0] if str(error) else repr(error))])
    found.flaws = [*flaws, *found.flaws]
    found.layers = [] if flaws else found.layers
    return size, found


def workers() -> int:
    """How many files are judged at once."""
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)))


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def judge_files(folder: Path, files: Sequence[JudgedFile], expectation: Expectation, at_once: int = 0) -> Totals:
    """Inspect every file, ``at_once`` of them at the same time (0: as many as there are cores)."""
    totals = Totals(LayerStatistics(expectation.labels))
    at_once = at_once or workers()
    waiting: collections.deque[tuple[JudgedFile, concurrent.futures.Future[tuple[int, Examined]]]] = collections.deque()
    with _one_thread_each(), concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for file in files:
            waiting.append((file, pool.submit(inspect, folder, file, expectation)))
            # Some files wait in the queue, so that no worker is idle.
            if len(waiting) > 2 * at_once:
                done, future = waiting.popleft()
                totals.add(done, *future.result())
        for done, future in waiting:
            totals.add(done, *future.result())
    return totals

"""The controller's record of a wheel's version and digest: a lock with one pin, committed with the stacks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Callable, NamedTuple

from ansible.module_utils.aerie.distributions import lock
from ansible.module_utils.aerie.distributions.names import normalize
from ansible.module_utils.aerie.environment import comparison
from ansible.module_utils.aerie.environment.network import WheelRefusal
from ansible.module_utils.aerie.environment.vllm_wheel import Source, pin_line
from ansible.module_utils.aerie.environment.wheel_name import file_of, is_of, parse_name
from ansible.module_utils.aerie.shared.durable import write_durably
from ansible.module_utils.aerie.shared.hold import hold

if TYPE_CHECKING:
    from pathlib import Path


class RecordedWheel(NamedTuple):
    """A wheel that can be installed by hash."""

    version: str
    sha256: str


def read(path: Path, distribution: str) -> RecordedWheel | None:
    """The recorded wheel, None when there is no record. Raises `Refusal` for a record without one pin and one hash."""
    if not path.is_file():
        return None
    text = lock.joined([str(path)])
    pins, hashes = lock.parse(text), comparison.HASH.findall(text)
    if len(pins) != 1 or len(hashes) != 1 or pins[0].name != normalize(distribution):
        wanted = f"one pin of {distribution} with one hash, sha256 in small letters"
        raise lock.refusal(f"{len(pins)} pins and {len(hashes)} hashes", wanted, path)
    return RecordedWheel(pins[0].version, hashes[0].partition(":")[2])


def settle(
    path: Path, source: Source, trust: bool, fetch: Callable[[], RecordedWheel], dry: bool
) -> RecordedWheel | None:
    """The wheel's version and digest, which are recorded from now on.

    Where there is no record, `fetch` downloads the wheel; `trust` allows that without a digest. With `dry` nothing is
    downloaded or written, and None means that the wheel would be downloaded. Raises `Refusal` or `OSError`.
    """
    known = read(path, source.distribution)
    if known:
        if source.channel == "nightly" and not is_of(known.version, source.commit):
            raise WheelRefusal(
                f"{path} records {known.version}", f"a build of commit {source.commit}",
                "restore the record of this commit, or remove it and record the digest anew",
            )  # fmt: skip
        return _same(path, source.sha256, known)
    name = parse_name(file_of(source.location))
    if source.channel == "wheel" and name:
        known = RecordedWheel(name.version, source.sha256)
    elif not source.sha256 and not trust:
        raise WheelRefusal(
            f"no digest is known of the wheel of {source.commit} for {source.variant}", "a digest before a download",
            "set vllm_sha256; or, the index publishing none, run once with -e vllm_trust_first_download=true, which "
            f"records the digest of what came in {path}, to be committed",
        )  # fmt: skip
    if dry:
        return known
    known = known or fetch()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(str(path.parent), os.O_RDONLY)
    try:
        # Hosts of one run come here at the same time; the digest of the first holds for all.
        hold(handle)
        meanwhile = read(path, source.distribution)
        if meanwhile:
            return _same(path, known.sha256, meanwhile)
        write_durably(path, _document(source, known).encode())
    finally:
        os.close(handle)
    return known


def _same(path: Path, sha256: str, known: RecordedWheel) -> RecordedWheel:
    if sha256 not in ("", known.sha256):
        raise WheelRefusal(
            f"sha256 {sha256}, given or downloaded", f"sha256 {known.sha256}, recorded in {path}",
            "find out why they differ; remove the record only when the new digest is the right one",
        )  # fmt: skip
    return known


def _document(source: Source, known: RecordedWheel) -> str:
    what = f"commit {source.commit}, {source.variant}" if source.channel == "nightly" else file_of(source.location)
    how = "given by the inventory" if source.sha256 else "that of the first download"
    head = f"# The wheel of {what}. Its digest was {how}. Commit this file.\n"
    return head + pin_line(source.distribution, known.version, known.sha256)

"""What is installed of one distribution, as frozen values: its RECORD, its files, and what we recorded of it.

Reads only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Mapping, Sequence

from ansible.module_utils.aerie.distributions import installed
from ansible.module_utils.aerie.distributions.installed import sha256
from ansible.module_utils.aerie.patching import bytecode, diff, pristine_copies
from ansible.module_utils.aerie.shared.durable import read_or_none
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.distributions.written import Memory
    from ansible.module_utils.aerie.patching.series import Series


@dataclass(frozen=True)
class ObservedFile:
    """One file that a series or the record names. Digests and bytes are ``None`` where there is no such file."""

    path: str
    current: bytes | None
    current_digest: str | None
    pristine: bytes | None
    pristine_digest: str | None
    compiled: tuple[bytecode.CompiledCopy, ...]

    @property
    def pristine_known(self) -> bool:
        """False when no bytes with the pristine digest are left: then nothing can be computed."""
        return self.pristine_digest is None or self.pristine is not None


@dataclass(frozen=True)
class Declared:
    """What the series for the installed version say: pristine digests of edited files, and bytes of added modules."""

    files: Mapping[str, str]
    modules: Mapping[str, bytes]

    @classmethod
    def by(cls, series: Sequence[Series]) -> Declared:
        """What ``series`` say."""
        files = {path: digest for candidate in series for path, digest in candidate.files.items()}
        return cls(files, {module.target: module.content for candidate in series for module in candidate.modules})


@dataclass(frozen=True)
class Missing:
    """A distribution that is not installed, and the series for it."""

    name: str
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Observation:
    """One installed distribution.

    Attributes:
        name: the normalized name.
        series: all series for it, in order.
        distribution: where it is installed, and its version.
        record: RECORD as the wheel delivered it.
        record_content: the bytes of RECORD now.
        declared: what the series for the installed version say.
        files: every file that a series or the memory names, by path.
        memory: what earlier runs recorded.

    """

    name: str
    series: tuple[Series, ...]
    distribution: installed.Distribution
    record: installed.Record
    record_content: bytes
    declared: Declared
    files: tuple[ObservedFile, ...]
    memory: Memory


def observe(root: Path, name: str, series: Sequence[Series], memory: Memory, rollback: bool) -> Observation | Missing:
    """Read all that is known of one distribution.

    Raises ``Refusal`` where the environment cannot be judged at all, ``OSError`` for what cannot be read.
    """
    distribution = installed.find(root, name)
    if distribution is None:
        return Missing(name, tuple(series))
    content = _record_content(name, distribution)
    record = _pristine_record(root, content, series, memory)
    fitting = [candidate for candidate in series if candidate.version == distribution.version]
    declared = Declared.by(fitting)
    # Rolling back another version touches only what is recorded; a series for it says nothing about it.
    edited = {path for candidate in (fitting if rollback else series) for path in candidate.files}
    reader = _FileReader(root, distribution, record, declared, memory)
    paths = sorted({*edited, *declared.modules, *memory.files})
    files = tuple(reader.file(path, _edits(series, path)) for path in paths)
    return Observation(name, tuple(series), distribution, record, content, declared, files, memory)


def _record_content(name: str, distribution: installed.Distribution) -> bytes:
    content = read_or_none(distribution.site_packages / distribution.record_path)
    if content is None:
        raise Refusal(
            "environment",
            f"{name} has no RECORD in {distribution.dist_info}, so what the wheel delivered is unknown",
            "RECORD",
            f"reinstall {name} from a wheel; an editable install cannot be patched",
        )
    return content


def _pristine_record(root: Path, content: bytes, series: Sequence[Series], memory: Memory) -> installed.Record:
    """RECORD as the wheel delivered it: the kept copy if we wrote the present one, else without our lines."""
    if memory.record and memory.record.pristine and sha256(content) in memory.record.digests:
        kept = pristine_copies.read(root, memory.record.pristine)
        if kept is not None:
            return installed.Record.parse(kept)
    record = installed.Record.parse(content)
    ours: dict[str, set[str | None]] = {
        path: set(written.digests) for path, written in memory.files.items() if written.pristine is None
    }
    for module in (module for candidate in series for module in candidate.modules):
        ours.setdefault(module.target, set()).add(sha256(module.content))
    added = {path for path, digests in ours.items() if record.digests.get(path) in digests}
    return record.without(added) if added else record


def _edits(series: Sequence[Series], path: str) -> list[diff.FileDiff]:
    """All edits of one file, in the order of the series."""
    patches = [patch for candidate in series for patch in candidate.patches]
    return [edit for patch in patches for edit in patch.parsed.files if edit.path == path]


@dataclass(frozen=True)
class _FileReader:
    """Reads the files of one distribution."""

    root: Path
    distribution: installed.Distribution
    record: installed.Record
    declared: Declared
    memory: Memory

    def file(self, path: str, edits: list[diff.FileDiff]) -> ObservedFile:
        """One file; ``edits`` are all that the series make of it."""
        source = self.distribution.site_packages / path
        current = read_or_none(source)
        current_digest = None if current is None else sha256(current)
        digest = self._pristine_digest(path)
        pristine = None
        if digest is not None:
            pristine = current if current_digest == digest else self._lost_pristine(digest, current, edits)
        return ObservedFile(path, current, current_digest, pristine, digest, bytecode.read_copies(source))

    def _pristine_digest(self, path: str) -> str | None:
        """The digest of the file that the wheel delivered: RECORD's, else the series', else the one in the memory."""
        recorded = self.record.digests.get(path)
        if path in self.declared.modules and path in self.record.digests:
            return recorded
        if path in self.declared.files:
            return recorded or self.declared.files[path]
        if path in self.memory.files and path not in {*self.declared.modules, *self.record.digests}:
            # Another release may lack the file; then the wheel delivers none.
            return self.memory.files[path].pristine if self.memory.version == self.distribution.version else None
        return recorded

    def _lost_pristine(self, digest: str, current: bytes | None, edits: list[diff.FileDiff]) -> bytes | None:
        kept = pristine_copies.read(self.root, digest)
        if kept is not None or current is None:
            return kept
        # No copy, as after a patch by hand: take our own edits back, and accept the result only by its digest.
        recovered = diff.recover(current, edits)
        return recovered if sha256(recovered) == digest else None

"""What the engine keeps inside an environment: pristine copies, and the digests of what it wrote.

Nothing here is believed: a copy counts only while its bytes have the digest of its name, and a
recorded digest only tells that bytes found on disk are ours to replace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible.module_utils.aerie.distributions import written
from ansible.module_utils.aerie.distributions.installed import read_or_none, sha256
from ansible.module_utils.aerie.distributions.written import Memory
from ansible.module_utils.aerie.patching.files import sync_directory, write_durably

if TYPE_CHECKING:
    from pathlib import Path


class Store:
    """The directory ``.aerie/patches`` of an environment."""

    def __init__(self, root: Path) -> None:
        self.path = written.folder_of(root)
        recorded = written.read(root)
        # A record that is there and cannot be read: what it said must not be taken for nothing.
        self.garbled = not recorded.readable
        self.memories = dict(recorded.by_distribution)

    def memory(self, distribution: str) -> Memory:
        """What is recorded of a distribution; an empty memory when nothing is."""
        return self.memories.get(distribution, Memory())

    def kept(self, digest: str) -> bytes | None:
        """The kept bytes with this digest, if the copy is there and sound."""
        content = read_or_none(self.path / "pristine" / digest)
        return content if content is not None and sha256(content) == digest else None

    def prepare(self) -> None:
        """Make the directories."""
        (self.path / "pristine").mkdir(parents=True, exist_ok=True)

    def keep(self, content: bytes) -> None:
        """Keep a copy under its digest, unless a sound one is there."""
        digest = sha256(content)
        if self.kept(digest) is None:
            write_durably(self.path / "pristine" / digest, content)

    def save(self, prune: bool = True) -> None:
        """Write the recorded digests; with ``prune``, drop the copies that none of them needs, and an empty store."""
        needed = {digest for memory in self.memories.values() for digest in memory.pristine_digests}
        if prune and all(memory.is_empty for memory in self.memories.values()):
            self._vanish()
            return
        content = written.content_of(self.memories)
        if read_or_none(self.path / "state.json") != content:
            write_durably(self.path / "state.json", content)
        if prune:
            self._prune(needed)

    def _vanish(self) -> None:
        """Leave nothing where nothing is patched any more."""
        (self.path / "state.json").unlink(missing_ok=True)
        if (self.path / "pristine").is_dir():
            self._prune(set())
            (self.path / "pristine").rmdir()
            self.path.rmdir()

    def _prune(self, needed: set[str]) -> None:
        stale = [copy for copy in (self.path / "pristine").iterdir() if copy.name not in needed]
        for copy in stale:
            copy.unlink()
        if stale:
            sync_directory(self.path / "pristine")

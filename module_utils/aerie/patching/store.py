"""What the engine keeps inside an environment: pristine copies, and the digests of what it wrote.

Nothing here is believed: a copy counts only while its bytes have the digest of its name, and a
recorded digest only tells that bytes found on disk are ours to replace.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.distributions.installed import sha256
from ansible.module_utils.aerie.patching.files import read_or_none, sync_directory, write_durably

if TYPE_CHECKING:
    from pathlib import Path

_SCHEMA = 1


@dataclass
class Written:
    """Of one path: the pristine digest, and every digest that we may have written (``None``: no file)."""

    pristine: str | None
    digests: list[str | None] = field(default_factory=list)


@dataclass
class Memory:
    """What is recorded of one distribution."""

    files: dict[str, Written] = field(default_factory=dict)
    record: Written | None = None
    version: str = ""


def _written(value: Any) -> Written:
    return Written(value["pristine"], list(value["written"]))


class Store:
    """The directory ``.aerie/patches`` of an environment."""

    def __init__(self, root: Path) -> None:
        self.path = root / ".aerie" / "patches"
        # A record that is there and cannot be read: what it said must not be taken for nothing.
        self.garbled = False
        self.memories = self._load()

    def _load(self) -> dict[str, Memory]:
        content = read_or_none(self.path / "state.json")
        try:
            state = json.loads(content or b"{}")
            if state.get("schema") != _SCHEMA:
                self.garbled = content is not None
                return {}
            return {
                name: Memory(
                    {path: _written(value) for path, value in entry["files"].items()},
                    _written(entry["record"]) if entry["record"] else None,
                    str(entry["version"]),
                )
                for name, entry in state["distributions"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            # A garbled record only costs the knowledge of which bytes are ours; digests judge anyway.
            self.garbled = True
            return {}

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
        state: dict[str, Any] = {"schema": _SCHEMA, "distributions": {}}
        needed: set[str | None] = set()
        for name, memory in sorted(self.memories.items()):
            known = [*memory.files.values(), *([memory.record] if memory.record else [])]
            if not memory.files and not memory.record:
                continue
            needed.update(written.pristine for written in known)
            state["distributions"][name] = {
                "version": memory.version,
                "files": {
                    path: {"pristine": written.pristine, "written": written.digests}
                    for path, written in sorted(memory.files.items())
                },
                "record": {"pristine": memory.record.pristine, "written": memory.record.digests}
                if memory.record
                else None,
            }
        if not state["distributions"] and prune:
            self._vanish()
            return
        content = json.dumps(state, indent=1).encode()
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

    def _prune(self, needed: set[str | None]) -> None:
        stale = [copy for copy in (self.path / "pristine").iterdir() if copy.name not in needed]
        for copy in stale:
            copy.unlink()
        if stale:
            sync_directory(self.path / "pristine")

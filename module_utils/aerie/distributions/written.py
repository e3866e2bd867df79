"""The record of what this project wrote into installed distributions: `.aerie/patches/state.json`.

A recorded digest only tells that bytes found on disk are ours to replace. It never tells what a file should be.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Mapping

from ansible.module_utils.aerie.shared.durable import read_or_none

if TYPE_CHECKING:
    from pathlib import Path

_SCHEMA = 1


@dataclass(frozen=True)
class Written:
    """What we wrote to one path: the pristine digest, and every digest that we may have written (``None``: no file)."""

    pristine: str | None
    digests: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class Memory:
    """What is recorded of one distribution: its files by path, its RECORD if we changed it, and its version."""

    files: Mapping[str, Written] = field(default_factory=dict)
    record: Written | None = None
    version: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the distribution is ours."""
        return not self.files and self.record is None

    @property
    def pristine_digests(self) -> set[str]:
        """The digests of the pristine files that the record refers to."""
        everything = [*self.files.values(), *([self.record] if self.record else [])]
        return {written.pristine for written in everything if written.pristine is not None}


@dataclass(frozen=True)
class Memories:
    """The record of an environment: what is known by distribution, and whether the record could be read."""

    by_distribution: Mapping[str, Memory] = field(default_factory=dict)
    # A record that is there and cannot be read does not mean that nothing was written.
    readable: bool = True

    def of(self, distribution: str) -> Memory:
        """What is recorded of a distribution; an empty memory when nothing is."""
        return self.by_distribution.get(distribution, Memory())

    def wrote_record(self, distribution: str, pristine: str, current: str) -> bool:
        """Whether we made the RECORD with digest ``current`` from the one with digest ``pristine``."""
        record = self.of(distribution).record
        return record is not None and record.pristine == pristine and current in record.digests


def folder_of(root: Path) -> Path:
    """The folder of the record in the environment at ``root``."""
    return root / ".aerie" / "patches"


def file_of(root: Path) -> Path:
    """The record in the environment at ``root``."""
    return folder_of(root) / "state.json"


def read(root: Path) -> Memories:
    """The record of the environment at ``root``; without one, empty memories."""
    content = read_or_none(file_of(root))
    return Memories() if content is None else parse(content)


def parse(content: bytes) -> Memories:
    """The record from its bytes. A record that cannot be read only costs the knowledge of which bytes are ours."""
    try:
        document = json.loads(content or b"{}")
        if document.get("schema") != _SCHEMA:
            return Memories(readable=False)
        return Memories({name: _memory(entry) for name, entry in document["distributions"].items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        return Memories(readable=False)


def _memory(entry: Any) -> Memory:
    files = {path: _written(value) for path, value in entry["files"].items()}
    return Memory(files, _written(entry["record"]) if entry["record"] else None, str(entry["version"]))


def _written(value: Any) -> Written:
    return Written(value["pristine"], tuple(value["written"]))


def content_of(by_distribution: Mapping[str, Memory]) -> bytes:
    """The bytes of the record; memories that are empty are left out."""
    known = {name: memory for name, memory in sorted(by_distribution.items()) if not memory.is_empty}
    document = {"schema": _SCHEMA, "distributions": {name: _memory_data(memory) for name, memory in known.items()}}
    return json.dumps(document, indent=1).encode()


def _memory_data(memory: Memory) -> dict[str, Any]:
    return {
        "version": memory.version,
        "files": {path: _written_data(written) for path, written in sorted(memory.files.items())},
        "record": _written_data(memory.record) if memory.record else None,
    }


def _written_data(written: Written) -> dict[str, Any]:
    return {"pristine": written.pristine, "written": list(written.digests)}

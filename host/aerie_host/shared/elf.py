"""Which shared libraries a binary asks for, read from its ELF headers: hosts need no readelf."""

from __future__ import annotations

import re
import struct
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

# Names of the System V ABI, "Object Files" and "Program Loading and Dynamic Linking".
PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_NEEDED, DT_STRTAB, DT_STRSZ = 0, 1, 5, 10


class ElfError(ValueError):
    """The file is not a 64-bit little-endian ELF file, or is cut short."""


class Segment(NamedTuple):
    """One program header."""

    kind: int
    offset: int
    address: int
    size: int


def needed(path: Path) -> list[str]:
    """The ``DT_NEEDED`` entries of an ELF file, in their order; empty for a static one. Raises ``ElfError``."""
    with path.open("rb") as file:
        return needed_of(file, str(path))


def needed_of(file: IO[bytes], name: str) -> list[str]:
    """As `needed`, of a file that is open; `name` is for messages."""
    file.seek(0)
    try:
        return _needed(file, name)
    except struct.error:
        raise ElfError(f"{name}: the file is cut short") from None


def _needed(file: IO[bytes], name: str) -> list[str]:
    head = file.read(64)
    if head[:6] != b"\x7fELF\x02\x01":
        raise ElfError(f"{name}: not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", head, 32)
    entry_size, count = struct.unpack_from("<HH", head, 54)
    segments = []
    for number in range(count):
        file.seek(table + number * entry_size)
        raw = file.read(56)
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", raw)
        segments.append(Segment(kind, offset, address, size))
    dynamic = [segment for segment in segments if segment.kind == PT_DYNAMIC]
    if not dynamic:
        return []
    file.seek(dynamic[0].offset)
    raw = file.read(dynamic[0].size)
    tags = []
    for place in range(0, len(raw) - 15, 16):
        tag, value = struct.unpack_from("<qQ", raw, place)
        if tag == DT_NULL:
            break
        tags.append((tag, value))
    strings = _strings(file, name, segments, dict(tags))
    return [_name(strings, value) for tag, value in tags if tag == DT_NEEDED]


def _strings(file: IO[bytes], name: str, segments: list[Segment], tags: dict[int, int]) -> bytes:
    address, size = tags.get(DT_STRTAB, 0), tags.get(DT_STRSZ, 0)
    for segment in segments:
        if segment.kind == PT_LOAD and segment.address <= address < segment.address + segment.size:
            file.seek(segment.offset + address - segment.address)
            return file.read(size)
    raise ElfError(f"{name}: its table of names lies in no segment")


def _name(strings: bytes, place: int) -> str:
    return strings[place : strings.index(b"\0", place)].decode()


def cuda_majors(libraries: list[str]) -> set[str]:
    """The CUDA major versions that library names carry: ``libcudart.so.12`` gives ``12``."""
    found = (re.match(r"libcudart\.so\.(\d+)", name) for name in libraries)
    return {match.group(1) for match in found if match}

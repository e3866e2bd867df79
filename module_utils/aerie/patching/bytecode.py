"""Compiled copies of a source file: Python may run them without a look at the source."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_HEADER_BYTES = 16


@dataclass(frozen=True)
class CompiledCopy:
    """A ``.pyc`` file and its first 16 bytes; ``None`` when it cannot be read."""

    path: Path
    header: bytes | None


def compiled_copies(source: Path) -> list[Path]:
    """Every ``.pyc`` of ``source``: of any interpreter, any optimisation level, and the old place beside it."""
    if source.suffix != ".py":
        return []
    copies = sorted((source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"))
    beside = source.with_suffix(".pyc")
    return [*copies, beside] if beside.is_file() else copies


def read_copies(source: Path) -> tuple[CompiledCopy, ...]:
    """The compiled copies of ``source`` with their headers."""
    return tuple(CompiledCopy(path, _header(path)) for path in compiled_copies(source))


def _header(path: Path) -> bytes | None:
    try:
        with path.open("rb") as stream:
            return stream.read(_HEADER_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError:
        return None


def is_stale(copy: CompiledCopy, content: bytes) -> bool:
    """Whether Python would run ``copy`` although it was not compiled from ``content``.

    Only unchecked-hash files (PEP 552) can be stale: Python compares all others with the source.
    """
    header = copy.header or b""
    unchecked = int.from_bytes(header[4:8], "little") == 0b01
    # The hash is keyed by the interpreter's magic number; another interpreter's cannot be judged here.
    same = header[:4] == importlib.util.MAGIC_NUMBER and header[8:16] == importlib.util.source_hash(content)
    return unchecked and not same


def drop(source: Path) -> None:
    """Remove every compiled copy of ``source``, and ``__pycache__`` when that empties it."""
    cache = source.parent / "__pycache__"
    if cache.is_symlink():
        cache.unlink()  # the folder behind it is not ours
    for copy in compiled_copies(source):
        copy.unlink(missing_ok=True)
    if cache.is_dir() and not any(cache.iterdir()):
        cache.rmdir()

"""Writing so that a crash leaves either the old bytes or the new ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_new(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file that must not exist yet, durably; leave nothing when that fails."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        path.unlink()
        raise


def clear_temporary(folder: Path) -> None:
    """Remove what a killed `write_durably` left in ``folder``."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink()


def write_durably(path: Path, content: bytes) -> None:
    """Give ``path`` new bytes by a rename, so that no reader ever sees a part of them."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    write_new(temporary, content)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise
    sync_directory(path.parent)

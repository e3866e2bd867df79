"""Files that are there whole or not at all: the one way to write them, and to read what may not be there."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` (new, renamed, removed) survive a power cut."""
    descriptor = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_new(path: Path, data: bytes | memoryview, *, mode: int | None = None, durable: bool = True) -> None:
    """Write a file that must not exist yet; leave nothing when that fails.

    Args:
        path: the file; ``FileExistsError`` when it is there, also as a link that leads nowhere.
        data: its content.
        mode: its exact permission bits; None leaves them to the umask.
        durable: whether the content survives a power cut. The name does so after ``sync_folder``.

    """
    descriptor = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            stream.write(data)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
    except BaseException:
        path.unlink()
        raise


def replace_file(
    path: Path,
    data: bytes | memoryview,
    *,
    mode: int | None = None,
    temporary: Path | None = None,
    durable: bool = False,
) -> None:
    """Give ``path`` new content by a rename: a reader sees the old content or the new, never a part.

    After a power cut the file may hold the old content, the new or none: for what is written often and matters only
    while the writer runs. ``write_durably`` is for everything else.

    Args:
        path: the file, there or not.
        data: its new content.
        mode: its exact permission bits; None leaves them to the umask.
        temporary: the name that the content has until it is whole, on the same filesystem; None takes a hidden name
            beside ``path``. Writers that may run at the same time need a name each.
        durable: whether the content survives a power cut. The name does so after ``sync_folder``.

    """
    partial = temporary or path.with_name(f".{path.name}.partial")
    # What a killed writer left has no other owner.
    with contextlib.suppress(FileNotFoundError):
        partial.unlink()
    write_new(partial, data, mode=mode, durable=durable)
    try:
        partial.replace(path)
    except BaseException:
        partial.unlink()
        raise


def write_durably(
    path: Path, data: bytes | memoryview, *, mode: int | None = None, temporary: Path | None = None
) -> None:
    """Give ``path`` new content: whole and on disk under its name when this returns, or not there.

    The arguments are those of ``replace_file``.
    """
    replace_file(path, data, mode=mode, temporary=temporary, durable=True)
    sync_folder(path.parent)


def json_bytes(value: Any) -> bytes:
    """``value`` as JSON that people read, with a newline at the end."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def write_json(path: Path, value: Any, *, mode: int | None = None, temporary: Path | None = None) -> None:
    """Write ``value`` as JSON that people read, with ``write_durably``."""
    write_durably(path, json_bytes(value), mode=mode, temporary=temporary)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in ``path``; None when there is none that can be read whole."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def read_or_none(path: Path) -> bytes | None:
    """The content of a file, None when there is no such file."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None

"""Overwrite existing samples safely: remove the old ones when the first new sample is computed, not before.

Once the removal has begun, it is completed: by a later run if this one is killed. The fingerprint of the new samples
has three names, one after the other:

    wanted.json         the model is loading; the old samples are all there
    replacing.json      the first new sample is computed; the old samples are being removed
    fingerprint.json    the old samples are removed
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host.folder.layout import OUTPUT, REMEDY
from aerie_host.shared.durable import read_json, sync_folder, write_json
from aerie_host.shared.hold import hold
from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerie_host.folder.layout import Folder

# stat() counts blocks of this many bytes.
BLOCK = 512
OVERWRITE = "replace the samples (hidden_states_overwrite: true)"


def want(folder: Folder, fingerprint: dict[str, Any]) -> None:
    """Request that the first new sample replaces the old ones; ``Refusal`` when no file may be removed."""
    if not os.access(folder.path, os.W_OK | os.X_OK):
        found = f"{folder.path} may not be written: its samples cannot be replaced"
        raise Refusal(OUTPUT, found, "a folder that this user can write", REMEDY)
    write_json(folder.wanted, fingerprint)


def forget(folder: Folder) -> None:
    """Drop the request of an earlier run that had not begun to remove anything."""
    folder.wanted.unlink(missing_ok=True)


def begin(folder: Folder) -> None:
    """Remove the old samples, if that is requested. Every writer calls this before its first file."""
    with (folder.state / "replacing.lock").open("a") as stream:
        # One writer removes and the others wait: there must be no new file yet.
        hold(stream)
        if folder.wanted.exists():
            folder.wanted.replace(folder.replacing)
            sync_folder(folder.state)
        finish(folder)


def finish(folder: Folder) -> None:
    """Complete a removal that was begun."""
    if not folder.replacing.exists():
        return
    if not read_json(folder.replacing):
        found = f"{folder.replacing} is damaged: it is not known what replaces the samples"
        raise Refusal(OUTPUT, found, "a fingerprint", f"remove it to keep the samples, or {OVERWRITE}")
    try:
        folder.clear()
    except OSError as error:
        found = f"{error.filename} is to be replaced and cannot be removed: {error.strerror}"
        raise Refusal(OUTPUT, found, "samples that this user can remove", "remove it, then run again") from error
    sync_folder(folder.path)
    folder.replacing.replace(folder.fingerprint)
    sync_folder(folder.state)


def bytes_freed(paths: Iterable[Path]) -> int:
    """Bytes that the disk gets back when these files are removed; a file with another hard link gives none."""
    return sum(status.st_blocks * BLOCK for status in map(Path.lstat, paths) if status.st_nlink == 1)

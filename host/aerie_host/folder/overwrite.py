"""Samples that give way to others: not before the first of the new ones is computed, and from then on in any case.

The fingerprint of the new samples has three names, one after the other:

    wanted.json         the model is being loaded; all that was there is there
    replacing.json      a first new sample is whole: what was there is being removed, if need be by a later run
    fingerprint.json    it is gone
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host.report.outcome import JobError
from aerie_host.shared.durable import read_json, sync_folder, write_json
from aerie_host.shared.hold import hold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerie_host.folder.layout import Folder

# In which stat() counts.
BLOCK = 512


def want(folder: Folder, fingerprint: dict[str, Any]) -> None:
    """Have the first new sample replace what is there; ``JobError`` when nothing there may be removed."""
    if not os.access(folder.path, os.W_OK | os.X_OK):
        raise JobError(f"{folder.path} may not be written: its samples cannot be replaced")
    write_json(folder.wanted, fingerprint)


def forget(folder: Folder) -> None:
    """What an earlier run wanted and did not begin is void."""
    folder.wanted.unlink(missing_ok=True)


def begin(folder: Folder) -> None:
    """Remove what is to be replaced, if anything is; every writer calls this before its first file."""
    with (folder.state / "replacing.lock").open("a") as stream:
        # One removes, the others wait: nothing new may be there yet.
        hold(stream)
        if folder.wanted.exists():
            folder.wanted.replace(folder.replacing)
            sync_folder(folder.state)
        finish(folder)


def finish(folder: Folder) -> None:
    """Go on with a removal that was begun."""
    if not folder.replacing.exists():
        return
    if not read_json(folder.replacing):
        raise JobError(
            f"{folder.replacing} is damaged, so what replaces the samples there is not known: "
            "remove it to keep them, or replace them (hidden_states_overwrite: true)"
        )
    try:
        folder.clear()
    except OSError as error:
        raise JobError(f"{error.filename} is to be replaced and cannot be removed: {error.strerror}") from error
    sync_folder(folder.path)
    folder.replacing.replace(folder.fingerprint)
    sync_folder(folder.state)


def bytes_freed(paths: Iterable[Path]) -> int:
    """What removing these files gives back to the disk; a file that has another name elsewhere gives nothing."""
    return sum(status.st_blocks * BLOCK for status in map(Path.lstat, paths) if status.st_nlink == 1)

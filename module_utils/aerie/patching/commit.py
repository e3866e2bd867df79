"""Change many files together: stage all, then replace all, or put all back."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Sequence

from ansible.module_utils.aerie.distributions import written
from ansible.module_utils.aerie.patching import bytecode
from ansible.module_utils.aerie.patching.refusals import PATCHABLE, WRITABLE
from ansible.module_utils.aerie.shared.durable import sync_folder, write_new
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.patching.states import Change

_STAGE = ".aerie-stage"


class NotPutBackError(Exception):
    """A replacement failed and so did putting the old files back; the next run repairs it from digests."""


@dataclass
class _Staged:
    change: Change
    new: Path
    old: Path | None = None
    replaced: bool = False


def check_places(root: Path, changes: Sequence[Change]) -> None:
    """Raise ``Refusal`` for a folder that cannot be written, or that leads out of the environment into a cache."""
    for change in changes:
        parent = _existing_parent(change.file)
        real = parent.resolve()
        inside = real == change.site_packages or change.site_packages in real.parents
        if not inside or root not in change.site_packages.parents:
            found = (
                f"{parent} is a link to {real}, outside the environment: writing there would change every user of it"
            )
            raise Refusal("write", found, PATCHABLE, WRITABLE)
        if not os.access(parent, os.W_OK | os.X_OK):
            found = f"{parent} cannot be written (read-only file system, or no permission)"
            raise Refusal("write", found, PATCHABLE, WRITABLE)


def _existing_parent(path: Path) -> Path:
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    return parent


def _stage_places(root: Path, changes: Sequence[Change]) -> dict[Path, Path]:
    """For each site-packages a directory on the same file system, so that a rename can reach it."""
    private = written.folder_of(root)
    places = {}
    for site in {change.site_packages for change in changes}:
        same = private.stat().st_dev == site.stat().st_dev
        places[site] = private / _STAGE if same else site / _STAGE
    return places


def clear_stages(root: Path, sites: set[Path]) -> None:
    """Remove what a killed run left staged. Call with the hold taken."""
    for place in [written.folder_of(root), *sites]:
        if (place / _STAGE).is_dir():
            shutil.rmtree(place / _STAGE)


def commit(root: Path, changes: Sequence[Change]) -> None:
    """Make all ``changes``, or raise and leave everything as it was.

    New files take mode and owner of those they replace. A hard link or symbolic link is replaced
    by a file of its own: its other names, such as uv's cache, keep their bytes.
    """
    places = _stage_places(root, changes)
    try:
        for place in places.values():
            place.mkdir()
        staged = [_stage(change, places[change.site_packages], number) for number, change in enumerate(changes)]
        _replace_all(staged)
    finally:
        for place in places.values():
            shutil.rmtree(place, ignore_errors=True)


def _stage(change: Change, place: Path, number: int) -> _Staged:
    staged = _Staged(change, place / f"{number}.new")
    target = change.file
    exists = os.path.lexists(target)
    if change.content is not None:
        write_new(staged.new, change.content)
        if exists:
            _take_over(staged.new, target)
        else:
            # Whatever the umask allows, only the owner may change code that all users of the environment run.
            staged.new.chmod(stat.S_IMODE(staged.new.stat().st_mode) & 0o644)
    if exists:
        staged.old = place / f"{number}.old"
        _keep_inode(target, staged.old)
    return staged


def _take_over(new: Path, old: Path) -> None:
    try:
        info = old.stat()
    except FileNotFoundError:  # a dangling link has neither mode nor owner
        return
    if (info.st_uid, info.st_gid) != (new.stat().st_uid, new.stat().st_gid):
        # Only root may give files away; otherwise the writer owns the file, as after any editor.
        with contextlib.suppress(PermissionError):
            os.chown(new, info.st_uid, info.st_gid)
    new.chmod(stat.S_IMODE(info.st_mode))
    # Python compares whole seconds of the time with what a compiled copy was made from.
    now = int(time.time())
    if now == int(info.st_mtime):
        os.utime(new, (now + 1, now + 1))


def _keep_inode(path: Path, kept: Path) -> None:
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError:  # no hard links here, or not allowed on files of other users
        shutil.copy2(path, kept, follow_symlinks=False)


def _replace_all(staged: list[_Staged]) -> None:
    made: list[Path] = []
    try:
        for replacement in staged:
            # Before the replacement, so that no crash leaves new source beside old unchecked bytecode.
            bytecode.drop(replacement.change.file)
            if replacement.change.content is None:
                replacement.change.file.unlink()
            else:
                _make_parents(replacement.change.file.parent, made)
                replacement.new.replace(replacement.change.file)
            replacement.replaced = True
        for replacement in staged:
            # Somebody may have imported the old file in between.
            bytecode.drop(replacement.change.file)
        for folder in {replacement.change.file.parent for replacement in staged}:
            sync_folder(folder)
    except BaseException as error:
        _put_all_back(staged, made, error)
        raise


def _put_all_back(staged: list[_Staged], made: list[Path], error: BaseException) -> None:
    try:
        for replacement in reversed(staged):
            if replacement.replaced and replacement.old is None:
                replacement.change.file.unlink()
            elif replacement.replaced and replacement.old is not None:
                replacement.old.replace(replacement.change.file)
        for folder in reversed(made):
            folder.rmdir()
    except OSError as second:
        raise NotPutBackError(f"{error}, and then {second}: some files are new, some old; run again") from second


def _make_parents(folder: Path, made: list[Path]) -> None:
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for parent in reversed(missing):
        parent.mkdir()
        made.append(parent)


def remove_empty_parents(site_packages: Path, path: str) -> None:
    """Remove the folders of a file of ours that is gone, as far as they are empty."""
    folder = (site_packages / path).parent
    # A folder that stays does no harm: somebody may be putting a file in it.
    with contextlib.suppress(OSError):
        while folder != site_packages:
            if folder.is_dir():
                folder.rmdir()
            folder = folder.parent

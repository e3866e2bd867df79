"""Where environments are: `<path>` is a link to `<path>.d/<name>`.

A folder there without a manifest was never finished.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Iterator

from ansible.module_utils.aerie.distributions import manifest
from ansible.module_utils.aerie.environment.hold import HeldRefusal
from ansible.module_utils.aerie.shared.durable import sync_folder
from ansible.module_utils.aerie.shared.hold import hold_at_once


class Layout:
    """The link, and the folder of environments beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path.with_name(path.name + ".d")

    def current(self) -> Path | None:
        """The environment that the link leads to, when it is one of ours."""
        if not self.path.is_symlink():
            return None
        target = Path(os.path.realpath(self.path))
        return target if target.parent == Path(os.path.realpath(self.folder)) and target.is_dir() else None

    def stranger(self) -> str:
        """What is at the path when it is not our link; empty when the path is free or ours."""
        if self.path.is_symlink():
            target = os.path.realpath(self.path)
            if Path(target).parent == Path(os.path.realpath(self.folder)):
                return ""
            return f"a link to {target}"
        return "a directory" if self.path.is_dir() else "a file" if self.path.exists() else ""

    def finished(self) -> list[Path]:
        """Finished environments, the newest first."""
        if not self.folder.is_dir():
            return []
        return sorted((p for p in self.folder.iterdir() if p.is_dir() and manifest.read(p)), reverse=True)

    def unfinished(self) -> list[Path]:
        """The folders that interrupted builds left."""
        if not self.folder.is_dir():
            return []
        return sorted(p for p in self.folder.iterdir() if p.is_dir() and not p.is_symlink() and not manifest.read(p))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for this run. Raises `HeldRefusal` while another run builds there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as handle:
            if not hold_at_once(handle):
                found = f"another run builds in {self.folder}"
                raise HeldRefusal("build", found, "one run at a time", "wait for it to end")
            yield

    def new(self, lock_sha256: str) -> Path:
        """The path of a new environment; names sort by time."""
        stem = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{lock_sha256[:8]}"
        names = [stem, *(f"{stem}-{number}" for number in range(2, 100))]
        return next(self.folder / name for name in names if not (self.folder / name).exists())

    def set_aside(self) -> Path:
        """Move what is at the path to a name beside it; return that name."""
        aside = self.path.with_name(f"{self.path.name}.replaced-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        self.path.rename(aside)
        return aside

    def swap(self, environment: Path) -> None:
        """Point the link at an environment, in one step that survives a power cut."""
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        temporary.symlink_to(os.path.relpath(environment, self.path.parent))
        temporary.replace(self.path)
        sync_folder(self.path.parent)

    def prune(self, keep: int) -> list[str]:
        """Remove finished environments but the current one and the `keep` newest others; return the names removed."""
        current = self.current()
        spare = [path for path in self.finished() if path.resolve() != current][max(0, keep) :]
        for path in spare:
            remove(path)
        return [path.name for path in spare]


def remove(environment: Path) -> None:
    """Remove an environment, its manifest first, so that one which is removed in part never looks finished."""
    with contextlib.suppress(FileNotFoundError):
        (environment / manifest.MANIFEST).unlink()
    shutil.rmtree(str(environment))

"""Where environments lie: `<path>` is a link to `<path>.d/<id>`.

A folder there without a manifest was never finished.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, Iterator

from ansible.module_utils.aerie.environment.comparison import MANIFEST, manifest


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
        """What stands at the path when it is not our link; empty when the path is free or ours."""
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
        return sorted((p for p in self.folder.iterdir() if p.is_dir() and manifest(p)), reverse=True)

    def unfinished(self) -> list[Path]:
        """What an interrupted build left."""
        if not self.folder.is_dir():
            return []
        return sorted(p for p in self.folder.iterdir() if p.is_dir() and not p.is_symlink() and not manifest(p))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this run. Raises `BlockingIOError` when another run builds there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield

    def new(self, lock_sha256: str) -> Path:
        """A free name for a new environment; names sort by time."""
        stem = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{lock_sha256[:8]}"
        names = [stem, *(f"{stem}-{number}" for number in range(2, 100))]
        return next(self.folder / name for name in names if not (self.folder / name).exists())

    def set_aside(self) -> Path:
        """Move what stands at the path to a name beside it; that name."""
        aside = self.path.with_name(f"{self.path.name}.replaced-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        self.path.rename(aside)
        return aside

    def swap(self, environment: Path) -> None:
        """Point the link at an environment, in one step."""
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        temporary.symlink_to(os.path.relpath(environment, self.path.parent))
        temporary.replace(self.path)

    def prune(self, keep: int) -> list[str]:
        """Remove finished environments but the current one and the `keep` newest others; their names."""
        current = self.current()
        spare = [one for one in self.finished() if one.resolve() != current][max(0, keep) :]
        for one in spare:
            remove(one)
        return [one.name for one in spare]


def remove(environment: Path) -> None:
    """Remove an environment; without its manifest first, so that it never looks finished half removed."""
    with contextlib.suppress(FileNotFoundError):
        (environment / MANIFEST).unlink()
    shutil.rmtree(str(environment))


def finish(environment: Path, content: dict[str, Any]) -> None:
    """Write the manifest: from here on the environment counts as finished."""
    target = environment / MANIFEST
    target.parent.mkdir(exist_ok=True)
    temporary = target.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(target)

"""Read series directories, and the released distributions that they are compared with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ansible.module_utils.aerie.distributions.installed import sha256
from ansible.module_utils.aerie.patching.diff import DiffError
from ansible.module_utils.aerie.patching.series import Series, from_raw, read_directory
from ansible.module_utils.aerie.shared.refusal import Refusal
from tools import serieskit

if TYPE_CHECKING:
    from collections.abc import Iterator


class CannotRunError(Exception):
    """The command could not run: no such series, no such release, no network."""


# The errors that mean: could not run.
REFUSALS = (CannotRunError, Refusal, DiffError, OSError)


def parse_yaml(text: str) -> object:
    """Parse YAML; raise ``ValueError`` for what is none."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def read_raw(directory: Path) -> dict[str, Any]:
    """The content of a series directory. Raises ``SeriesRefusal`` or ``CannotRunError``."""
    if not (directory / "series.yml").is_file():
        raise CannotRunError(f"{directory} has no series.yml")
    return read_directory(directory.resolve(), parse_yaml)


def read_series(directory: Path) -> Series:
    """The series in a directory. Raises ``SeriesRefusal`` or ``CannotRunError``."""
    return from_raw(read_raw(directory))


def all_series() -> list[Path]:
    """Every series directory of the checkout."""
    return sorted(path.parent for path in (serieskit.ROOT / "files" / "patches").glob("*/series.yml"))


class Release:
    """The files of one released distribution, read from a wheel or from a directory it was unpacked into."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._wheel = zipfile.ZipFile(path) if path.is_file() else None

    def read(self, name: str) -> bytes | None:
        """The bytes of a file, ``None`` when the release has none of that name."""
        if self._wheel is not None:
            return self._wheel.read(name) if name in self._wheel.namelist() else None
        file = self.path / name
        return file.read_bytes() if file.is_file() else None

    def pristine(self, names: Iterator[str] | list[str]) -> dict[str, bytes | None]:
        """The bytes of several files."""
        return {name: self.read(name) for name in names}

    def digest(self, name: str) -> str | None:
        """The sha256 of a file, ``None`` when there is none."""
        content = self.read(name)
        return None if content is None else sha256(content)


def _uv() -> str:
    beside = Path(sys.executable).parent
    found = shutil.which("uv", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise CannotRunError("uv is not installed beside this Python, so no release can be fetched; give a wheel file")
    return found


@contextmanager
def release(distribution: str, wanted: str) -> Iterator[Release]:
    """A release by its wheel file or its version; a version is unpacked into a temporary folder.

    Nothing is installed into any environment, and no code of the release runs. Raises ``CannotRunError``.
    """
    if wanted.endswith(".whl"):
        if not Path(wanted).is_file():
            raise CannotRunError(f"no such wheel: {wanted}")
        yield Release(Path(wanted))
        return
    with tempfile.TemporaryDirectory(prefix="aerie-release-") as folder:
        command = [_uv(), "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target", folder]
        command += ["--python", sys.executable, "--link-mode", "symlink", f"{distribution}=={wanted}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotRunError(f"{distribution} {wanted} cannot be fetched: {done.stderr.strip()}")
        yield Release(Path(folder))

"""Tiny real wheels, a folder that serves them, and locks with their digests."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ansible.module_utils.aerie.environment.demand import Demand

UV = str(Path(sys.executable).parent / "uv")


def make_wheel(
    folder: Path, name: str, version: str, content: str = "", tag: str = "py3-none-any", requires: tuple[str, ...] = ()
) -> str:
    """Write a wheel with one module; the sha256 of the file."""
    info = f"{name}-{version}.dist-info"
    demands = "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = {
        f"{name}.py": content or f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{demands}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(text)}\n")
    files[f"{info}/RECORD"] = "".join(lines) + f"{info}/RECORD,,\n"
    target = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return hashlib.sha256(target.read_bytes()).hexdigest()


def make_lock(**pins: tuple[str, str]) -> str:
    """The text of a lock, from name to version and digest."""
    return "".join(f"{name}=={version} \\\n    --hash=sha256:{digest}\n" for name, (version, digest) in pins.items())


@contextlib.contextmanager
def job_in(environment: Path) -> Iterator[int]:
    """A job of ours that runs in an environment; its process number."""
    command = [str(environment / "bin" / "python"), "-c", "print(1, flush=True); input()"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, env={**os.environ, "AERIE_JOB": "x"}) as job:
        assert job.stdout is not None
        job.stdout.readline()
        try:
            yield job.pid
        finally:
            job.kill()


class Wheels:
    """A folder of wheels and the lock of some of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def pin(self, name: str, version: str, content: str = "") -> tuple[str, str]:
        return version, make_wheel(self.folder, name, version, content)


@pytest.fixture
def wheels(tmp_path: Path) -> Wheels:
    return Wheels(tmp_path / "wheels")


@pytest.fixture
def lock_text(wheels: Wheels) -> str:
    return make_lock(alpha=wheels.pin("alpha", "1.0"), beta=wheels.pin("beta", "2.0"))


@pytest.fixture
def demand(tmp_path: Path, wheels: Wheels, lock_text: str) -> Callable[..., Demand]:
    """A demand over the folder of wheels; its cache is the test's own."""
    sources = {
        "UV_FIND_LINKS": str(wheels.folder),
        "UV_NO_INDEX": "1",
        "UV_OFFLINE": "1",
        "UV_CACHE_DIR": str(tmp_path / "cache"),
    }

    def make(lock: str = "", variables: dict[str, str] | None = None, **more: object) -> Demand:
        values = {
            "path": tmp_path / "env", "lock": lock or lock_text, "stack": "tiny", "python": sys.executable,
            "home": tmp_path, "uv": UV, "vllm_distribution": "vllm", **more,
        }  # fmt: skip
        return Demand(variables={**sources, **(variables or {})}, **values)  # type: ignore[arg-type]

    return make

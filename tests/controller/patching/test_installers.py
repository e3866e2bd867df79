"""Real installers: uv in its link modes, and pip. What we add never stays behind, their caches never change."""

from __future__ import annotations

import ensurepip
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .helpers import PRISTINE, Env, Maker, assert_clean, build_wheel, failed, lay_out, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

UV = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}") or "uv"
needs_uv = pytest.mark.skipif(not shutil.which(UV), reason="uv is not installed beside this Python")


@pytest.fixture
def uv(tmp_path: Path) -> Callable[..., None]:
    def call(*arguments: object, mode: str = "hardlink") -> None:
        environment = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_LINK_MODE": mode, "UV_OFFLINE": "1"}
        environment.pop("VIRTUAL_ENV", None)
        command = [UV, *map(str, arguments), "--no-config"]
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True)

    return call


def installed(root: Path) -> Env:
    """The view of the tests on an environment that an installer made."""
    env = Env.__new__(Env)
    env.root = root
    env.site = next((root / "lib").glob("python3*/site-packages"))
    env.pristine = snapshot(env.site)
    return env


@needs_uv
@pytest.mark.parametrize("mode", ["hardlink", "symlink", "copy"])
def test_uv_environments_and_cache(tmp_path: Path, maker: Maker, uv: Callable[..., None], mode: str) -> None:
    wheel = build_wheel(tmp_path, "demo", "1.0", PRISTINE)
    other_wheel = build_wheel(tmp_path, "other", "1.0", {"other/__init__.py": b""})
    envs = []
    for name in ("one", "two"):
        uv("venv", "--python", sys.executable, tmp_path / name)
        uv("pip", "install", "--no-index", "--python", tmp_path / name, wheel, mode=mode)
        envs.append(installed(tmp_path / name))
    one, two = envs
    archive = tmp_path / "cache" / "archive-v0"
    before = snapshot(archive)
    assert any(name.endswith("demo/engine.py") for name in before)
    for _ in range(2):
        assert failed(one.run(maker)) == []
    assert not one.run(maker).changed
    one.assert_desired(maker)
    assert snapshot(archive) == before
    two.assert_pristine()
    # A third environment made from the same cache is pristine.
    uv("venv", "--python", sys.executable, tmp_path / "three")
    uv("pip", "install", "--no-index", "--python", tmp_path / "three", wheel, mode=mode)
    assert installed(tmp_path / "three").read("demo/engine.py") == PRISTINE["demo/engine.py"]
    # Reinstalled by hand: seen, and converged again.
    uv("pip", "install", "--no-index", "--reinstall", "--python", one.root, wheel, mode=mode)
    assert one.read("demo/engine.py") == PRISTINE["demo/engine.py"]
    assert "patch 0001-first" in failed(one.run(maker, state="audited"))
    assert one.run(maker).changed
    one.assert_desired(maker)
    # A sync to a set without the distribution leaves nothing of it, and nothing of ours.
    (tmp_path / "wanted.txt").write_text(f"other @ {other_wheel.as_uri()}\n")
    uv("pip", "sync", "--no-index", "--python", one.root, tmp_path / "wanted.txt", mode=mode)
    assert not (one.site / "demo").exists()
    assert not list(one.site.glob("demo*"))
    gone = one.run(maker, state="absent")
    assert (failed(gone), gone.changed) == ([], False)
    assert snapshot(archive).items() >= before.items()


@needs_uv
def test_rollback_survives_a_sync_that_changes_nothing(tmp_path: Path, maker: Maker, uv: Callable[..., None]) -> None:
    wheel = build_wheel(tmp_path, "demo", "1.0", PRISTINE)
    uv("venv", "--python", sys.executable, tmp_path / "one")
    (tmp_path / "wanted.txt").write_text(f"demo @ {wheel.as_uri()}\n")
    uv("pip", "sync", "--no-index", "--python", tmp_path / "one", tmp_path / "wanted.txt")
    env = installed(tmp_path / "one")
    env.run(maker)
    uv("pip", "sync", "--no-index", "--python", tmp_path / "one", tmp_path / "wanted.txt")
    assert not env.run(maker).changed
    env.run(maker, state="absent")
    env.assert_pristine()


def unpacked_pip(folder: Path) -> Path:
    """The pip that comes with Python, unpacked: making an environment with pip takes longer than all the rest."""
    for bundled in (Path(ensurepip.__file__).parent / "_bundled", Path("/usr/share/python-wheels")):
        for wheel in sorted(bundled.glob("pip-*.whl")):
            zipfile.ZipFile(wheel).extractall(folder)
            return folder
    pytest.skip("this Python comes without the wheel of pip")


@pytest.mark.slow
def test_pip_uninstall_and_force_reinstall(tmp_path: Path, maker: Maker) -> None:
    wheel = build_wheel(tmp_path, "demo", "1.0", PRISTINE)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    environment = {**os.environ, "PYTHONPATH": str(unpacked_pip(tmp_path / "pip"))}

    def pip(*arguments: object) -> str:
        command = [str(tmp_path / "env/bin/python"), "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    python = next((tmp_path / "env/lib").glob("python3*")).name
    lay_out(tmp_path / "env", "demo", "1.0", PRISTINE, python)
    env = installed(tmp_path / "env")
    assert failed(env.run(maker)) == []
    assert not env.run(maker).changed
    pip("install", "--no-index", "-q", "--force-reinstall", wheel)
    assert env.read("demo/engine.py") == PRISTINE["demo/engine.py"]
    again = env.run(maker)
    assert (failed(again), again.changed) == ([], True)
    assert env.read("demo/engine.py") == maker.desired()["demo/engine.py"]
    assert_clean(env.root)
    pip("uninstall", "-y", "-q", "demo")
    assert not list(env.site.glob("demo*"))

"""Choosing a Python for the controller, with programs that pose as one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NEEDED = ("bash", "cat", "cut", "dirname", "env", "flock", "ls", "rm", "sha256sum")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing but the script, and a PATH with nothing but what it needs."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "controller_venv.sh", tmp_path / "tools")
    shutil.copy(ROOT / "requirements.txt", tmp_path)
    (tmp_path / "bin").mkdir()
    for name in NEEDED:
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "/nowhere")
    return tmp_path


def run(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": str(checkout / "bin"), "HOME": str(checkout), **environment}
    return subprocess.run(
        [checkout / "tools" / "controller_venv.sh"], env=variables, text=True, capture_output=True, check=False
    )


def pose(checkout: Path, name: str, script: str) -> None:
    path = checkout / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_no_python_says_what_is_supported_and_how_to_name_one(checkout: Path) -> None:
    done = run(checkout)
    assert done.returncode == 2
    assert "3.10, 3.11, 3.12 or 3.13" in done.stderr
    assert "PYTHON=" in done.stderr


def test_every_candidate_is_run_and_told(checkout: Path) -> None:
    pose(checkout, "python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    pose(checkout, "python3.11", "echo 'has no module ensurepip: install the package python3.11-venv'")
    pose(checkout, "python3", "echo 'is Python 3.9: 3.10 to 3.13 are supported'")
    done = run(checkout)
    assert done.returncode == 2
    for text in ("python3.12 does not run", "python3.11 has no module ensurepip", "python3 is Python 3.9"):
        assert text in done.stderr
    assert not (checkout / ".venv").exists()


def test_the_real_probe_refuses_a_python_that_is_too_old(checkout: Path) -> None:
    """Through an interpreter whose version is what the probe is told it is."""
    pose(checkout, "old", f"sed 's/^import sys$/import sys; sys.version_info = (3, 9, 1)/' | {sys.executable} -")
    (checkout / "bin" / "sed").symlink_to(shutil.which("sed") or "/nowhere")
    done = run(checkout, PYTHON=str(checkout / "bin" / "old"))
    assert done.returncode == 2
    assert "is Python 3.9: 3.10 to 3.13 are supported" in done.stderr


@pytest.mark.slow
def test_a_failed_installation_never_looks_finished(checkout: Path) -> None:
    (checkout / "requirements.txt").write_text("nothing-by-this-name==1.0 --hash=sha256:" + "0" * 64 + "\n")
    variables = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PYTHON": sys.executable}
    assert run(checkout, **variables).returncode != 0
    assert not (checkout / ".venv" / ".complete").exists()
    assert run(checkout, **variables).returncode != 0


@pytest.mark.slow
def test_a_complete_environment_is_left_alone_and_a_moved_one_is_not(checkout: Path) -> None:
    (checkout / "requirements.txt").write_text("# nothing\n")
    variables = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PYTHON": sys.executable}
    first = run(checkout, **variables)
    assert first.returncode == 0, first.stderr
    assert "controller:" in first.stdout
    assert run(checkout, **variables).stdout == ""
    stamp = checkout / ".venv" / ".complete"
    stamp.write_text(stamp.read_text().replace(str(checkout), "/elsewhere"))
    assert "controller:" in run(checkout, **variables).stdout


@pytest.mark.slow
def test_new_requirements_are_met_though_the_old_environment_is_first_on_path(checkout: Path) -> None:
    """As under make, which puts .venv/bin first."""
    (checkout / "requirements.txt").write_text("# nothing\n")
    variables = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    assert run(checkout, **variables, PYTHON=sys.executable).returncode == 0
    (checkout / "requirements.txt").write_text("# another nothing\n")
    path = f"{checkout / '.venv' / 'bin'}:{checkout / 'bin'}"
    renewed = run(checkout, **variables, PATH=path)
    assert renewed.returncode == 0, renewed.stderr
    assert (checkout / ".venv" / ".complete").exists()

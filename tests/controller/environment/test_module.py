"""uv_environment with its action plugin, under the real ansible-playbook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Wheels, make_lock

ROOT = Path(__file__).resolve().parents[3]
Play = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def play(tmp_path: Path, wheels: Wheels, lock_text: str) -> Play:
    (tmp_path / "tiny.lock").write_text(lock_text)
    task: dict[str, Any] = {
        "path": str(tmp_path / "env"), "lock": str(tmp_path / "tiny.lock"), "stack": "tiny", "home": str(tmp_path),
        "python": sys.executable, "python_versions": ">=3.10,<3.14",
        "environment": {
            "UV_FIND_LINKS": str(wheels.folder), "UV_NO_INDEX": "1", "UV_CACHE_DIR": str(tmp_path / "cache"),
        },
    }  # fmt: skip

    def call(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        content = [
            {"hosts": "h", "gather_facts": False, "tasks": [{"name": "Have it", "uv_environment": {**task, **more}}]}
        ]
        (tmp_path / "play.yml").write_text(json.dumps(content))
        hosts = {"all": {"hosts": {"h": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}}}
        (tmp_path / "hosts.json").write_text(json.dumps(hosts))
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "AERIE_REPORTS": str(tmp_path / "reports"),
        }
        command = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.json", "play.yml", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)

    return call


def section(tmp_path: Path) -> dict[str, Any]:
    report = json.loads((tmp_path / "reports" / "latest" / "report.json").read_text())
    value: dict[str, Any] = report["hosts"]["h"]["sections"]["provision"]
    return value


@pytest.mark.slow
def test_br29_check_then_real_then_again_and_check_again(play: Play, tmp_path: Path) -> None:
    told = play("--check", "--diff")
    assert "changed=1" in told.stdout, told.stdout + told.stderr
    assert "+alpha==1.0" in told.stdout
    assert not (tmp_path / "env").exists()
    assert not (tmp_path / "bin").exists()
    summary = section(tmp_path)["data"]["summary"]
    assert "would be built, 2 would move" in summary
    assert " s, " not in summary
    assert "changed=1" in play().stdout
    assert (tmp_path / "bin" / "uv").is_file()
    assert section(tmp_path)["data"]["moves"]["added"] == ["alpha 1.0", "beta 2.0"]
    assert "changed=0" in play().stdout
    assert "changed=0" in play("--check").stdout


@pytest.mark.slow
def test_failing_lock_tells_uv_s_reason_and_keeps_the_environment(play: Play, tmp_path: Path) -> None:
    play()
    before = (tmp_path / "env").readlink()
    (tmp_path / "tiny.lock").write_text(make_lock(alpha=("1.0", "0" * 64)))
    done = play()
    assert done.returncode == 2
    assert "ash mismatch" in done.stdout
    assert (tmp_path / "env").readlink() == before
    assert section(tmp_path)["checks"][0]["status"] == "fail"


@pytest.mark.slow
def test_a_directory_of_others_is_refused_adopted_or_replaced(play: Play, tmp_path: Path) -> None:
    play()
    # What an image brought: a plain environment with the locked distributions.
    built = (tmp_path / "env").resolve()
    (tmp_path / "env").unlink()
    built.rename(tmp_path / "env")
    refused = play()
    assert refused.returncode == 2
    assert "ml_env_replace" in refused.stdout
    (tmp_path / "bin" / "uv").unlink()
    adopted = play(source="existing")
    assert "changed=0" in adopted.stdout
    assert adopted.returncode == 0
    # Who installs nothing needs no uv.
    assert not (tmp_path / "bin" / "uv").exists()
    # An image that was not made from a lock has versions alone to be held to.
    hashed = (tmp_path / "tiny.lock").read_text()
    (tmp_path / "tiny.lock").write_text("alpha==1.0\nbeta==2.0\n")
    assert play(source="existing").returncode == 0
    (tmp_path / "tiny.lock").write_text(hashed)
    (tmp_path / "env" / "lib").joinpath("probe").write_text("")
    packages = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    (packages / "beta-2.0.dist-info").rename(packages / "beta-2.1.dist-info")
    wrong = play(source="existing")
    assert wrong.returncode == 2
    assert [c["name"] for c in section(tmp_path)["checks"] if c["status"] == "fail"] == [
        "distribution beta",
        "distributions",
    ]
    assert "changed=1" in play(replace=True).stdout
    assert (tmp_path / "env").is_symlink()

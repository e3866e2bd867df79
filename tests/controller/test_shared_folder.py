"""The folder that both Pythons share is a link in module_utils: Ansible packs what it leads to."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = Path("module_utils/aerie/shared")


def test_the_link_is_relative_and_stays_inside_the_checkout() -> None:
    assert (ROOT / LINK).is_symlink()
    assert (ROOT / LINK).readlink() == Path("../../host/aerie_host/shared")


@pytest.mark.slow
def test_a_module_that_imports_it_runs_from_an_exported_checkout(tmp_path: Path) -> None:
    exported = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(exported)) as archive:
        archive.extractall(tmp_path / "checkout", filter="tar")
    assert (tmp_path / "checkout" / LINK).is_symlink()
    done = subprocess.run(
        [
            Path(sys.executable).parent / "ansible", "localhost", "-i", "localhost,", "-c", "local", "-m", "host_job",
            "-a", f"state=stopped job_dir={tmp_path}/job wait=1", "-e", f"ansible_python_interpreter={sys.executable}",
        ],
        cwd=tmp_path / "checkout", capture_output=True, text=True, check=False,
        env={**os.environ, "ANSIBLE_CONFIG": str(tmp_path / "checkout" / "ansible.cfg")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.partition("=>")[2])
    assert result["aerie"]["checks"][0]["status"] == "pass"

"""Reports by people whose hosts were not fit, on hosts that are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
SHM = "/dev/shm"


def in_own_mounts(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script that mounts what nobody else sees."""
    return subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-euc", script, "sh", *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=120,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_LOAD_CALLBACK_PLUGINS": "false"},
    )  # fmt: skip


def gates(prepare: str, tmp_path: Path, stack: str) -> dict[str, Any]:
    """The section that the gates give of this machine, after its shared memory was prepared in a namespace."""
    plan = {"model": str(tmp_path), "data": str(tmp_path / "d"), "output": str(tmp_path / "o"), "layers": 4}
    arguments = {
        "stack": yaml.safe_load((ROOT / f"stacks/{stack}.yml").read_text()),
        "environment": str(tmp_path / "env"),
        "plan": {**plan, "max_length": 512, "tensor_parallel": 1, "gpu_memory_utilization": 0.9},
    }
    done = in_own_mounts(
        f'{prepare}; exec "$@"',
        *(sys.executable, "-m", "ansible", "adhoc", "localhost", "-i", "localhost,", "-c", "local"),
        *("-e", f"ansible_python_interpreter={sys.executable}", "-m", "host_gates", "-a", json.dumps(arguments)),
    )
    assert "=> {" in done.stdout, done.stdout + done.stderr
    found = json.JSONDecoder().raw_decode(done.stdout[done.stdout.index("=> {") + 3 :])[0]
    assert done.returncode != 0
    section: dict[str, Any] = found["aerie"]
    return section


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "prepare", "measured", "needed"),
    [
        ("vllm-0.16-cpu", f"mount -t tmpfs -o size=64m shm {SHM}", 64 << 20, "268.4 MB"),
        (
            "vllm-0.16-cuda",
            f"mount -t tmpfs -o size=200m shm {SHM}; head -c 190m /dev/zero > {SHM}/left-by-another",
            10 << 20,
            "2.1 GB",
        ),
    ],
    ids=["64 MB", "200 MB filled to 95 %"],
)
def test_br_10_shared_memory_that_is_too_small_stops_the_gates(
    tmp_path: Path, stack: str, prepare: str, measured: int, needed: str
) -> None:
    if in_own_mounts(f"mount -t tmpfs shm {SHM}").returncode:
        pytest.skip("this machine lets nobody mount in a namespace")
    (check,) = (one for one in gates(prepare, tmp_path, stack)["checks"] if one["name"] == "shared memory")
    assert check["status"] == "fail"
    # A page more or less: the kernel counts whole ones.
    assert float(check["found"].split(" MB free")[0]) == pytest.approx(measured / 1e6, abs=0.2)
    assert check["wanted"] == f"{needed} free"
    assert "--shm-size" in check["remedy"]

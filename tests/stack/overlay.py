"""An installed environment with one patch taken back, laid over the real one by PYTHONPATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ansible.module_utils.aerie.patching import diff, series

ROOT = Path(__file__).resolve().parents[2]
PATCHES = ROOT / "files" / "patches"
CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_MLA_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


@dataclass(frozen=True)
class Environment:
    """A provisioned environment, and a folder that hides some of its files (none when it is None)."""

    path: Path
    overlay: Path | None = None

    @property
    def site_packages(self) -> Path:
        """Where the environment keeps its packages."""
        return next((self.path / "lib").glob("python3.*/site-packages"))

    def run(self, arguments: list[str], stdin: str = "", timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run the environment's Python with the host program importable."""
        places = [str(place) for place in (self.overlay, ROOT / "host") if place]
        return subprocess.run(
            [str(self.path / "bin" / "python"), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env={**os.environ, **CPU, "PYTHONPATH": os.pathsep.join(places)},
        )

    def battery(
        self, out: Path, architecture: str = "llama", cases: tuple[str, ...] = ()
    ) -> tuple[dict[str, Any], str]:
        """Run the truth battery, or some of its cases; return its report (empty after a crash) and what it printed."""
        job = {
            "architecture": architecture,
            "seed": 1,
            "tensor_parallel_size": 1,
            "small": False,
            "device": "cpu",
            "cases": cases,
            "out": str(out),
        }
        done = self.run(["-m", "aerie_host.truth.engine"], json.dumps(job))
        log = done.stdout + done.stderr
        if done.returncode:
            return {}, log
        report: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return report, log

    def truth(self, **spec: Any) -> tuple[int, dict[str, Any], str]:
        """Run the command truth; return its exit code, its document, and what it logged."""
        asked = {"proofs": "/nonexistent", "identity": {}, "again": True, **spec}
        done = self.run(["-m", "aerie_host", "truth", "--check", "--spec", "-"], json.dumps(asked), timeout=1200)
        return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


def read_series(name: str) -> series.Series:
    """A series of this checkout."""
    return series.from_raw(series.read_directory(PATCHES / name, yaml.safe_load))


def without(
    environment: Environment, name: str, patch_id: str, folder: Path, also: tuple[str, ...] = ()
) -> Environment:
    """The environment as it is, less one patch of the series ``name``, and ``also`` others of it."""
    found = read_series(name)
    patches = [one for one in found.patches if one.id in (patch_id, *also)]
    assert len(patches) == 1 + len(also)
    site = environment.site_packages
    edits: dict[str, list[diff.FileDiff]] = {}
    for one in (one for patch in patches for one in patch.parsed.files):
        edits.setdefault(one.path, []).append(one)
    for package in {Path(path).parts[0] for path in edits}:
        # links, not copies: vLLM is large; the patched files alone are replaced
        shutil.copytree(site / package, folder / package, copy_function=os.symlink)
    for path, diffs in edits.items():
        place = folder / path
        before = place.read_bytes()
        after = diff.recover(before, diffs)
        assert after != before, f"{patch_id} is not applied in {environment.path}"
        place.unlink()
        place.write_bytes(after)
    return Environment(environment.path, folder)

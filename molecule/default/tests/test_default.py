"""The state that the whole path must leave, looked at from outside."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

VAR = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "var"
STATES = VAR / "hidden_states" / "few"
LOOK = """
import json, sys, torch
told = torch.load(sys.argv[1], weights_only=True)
print(json.dumps({
    "layers": [[list(t.shape), str(t.dtype), bool(torch.isfinite(t).all())] for t in told["hidden_states"]],
    "ids": list(told["input_ids"].shape),
    "mask": list(told["loss_mask"].shape),
    "trained": int(told["loss_mask"].sum()),
}))
"""


@pytest.fixture
def python() -> str:
    return str(VAR / "ml-env" / "bin" / "python")


def test_environment_is_a_link_to_a_finished_one(host: Any) -> None:
    assert host.file(str(VAR / "ml-env")).is_symlink
    manifest = json.loads(host.file(str(VAR / "ml-env" / ".aerie" / "manifest.json")).content_string)
    assert manifest["stack"] == "vllm-0.16-cpu"
    assert len(manifest["distributions"]) > 150


def test_drift_is_gone_and_every_patch_is_applied(host: Any) -> None:
    found = host.run("grep -rl 'edited by hand' %s/lib/python3*/site-packages/speculators", str(VAR / "ml-env")).stdout
    assert found == ""
    reports = sorted((VAR / "reports").glob("2*/report.json"))
    states = [
        patch["state"]
        for path in reports
        for one in json.loads(path.read_text())["hosts"].values()
        for patch in one["sections"].get("patch", {}).get("data", {}).get("patches", [])
    ]
    assert states
    assert states[-1] == "applied"


def test_every_sample_is_there_and_loads_safely(host: Any, python: str) -> None:
    files = sorted(STATES.glob("data_*.pt"))
    assert len(files) == 12
    assert [p for p in STATES.iterdir() if p.name.endswith("pt") and p not in files] == []
    told = json.loads(host.check_output(f"{python} -c '{LOOK}' {files[0]}"))
    length = told["ids"][0]
    assert told["layers"] == [[[length, 576], "torch.bfloat16", True]] * 4
    assert told["mask"] == [length]
    assert 0 < told["trained"] < length


def test_the_second_run_extracted_nothing(host: Any) -> None:
    manifest = STATES / "manifest.json"
    assert host.file(str(manifest)).exists
    runs = [json.loads(p.read_text()) for p in sorted((VAR / "reports").glob("2*/report.json"))]
    extractions = [r["hosts"]["local"]["sections"].get("extract") for r in runs if "local" in r["hosts"]]
    assert "nothing to extract" in str([e for e in extractions if e][-1]["data"]["summary"])


def test_report_says_pass() -> None:
    runs = [json.loads(p.read_text()) for p in sorted((VAR / "reports").glob("2*/report.json"))]
    whole = [r for r in runs if "ready" in r["hosts"].get("local", {}).get("sections", {})]
    assert [r["verdict"] for r in whole] == ["pass", "pass"]
    assert all(r["counts"]["checks"] > 50 for r in whole)

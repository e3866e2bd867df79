"""The gates that every host has."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible.module_utils.aerie.distributions import pythons
from ansible.module_utils.aerie.distributions.versions import satisfies
from ansible.module_utils.aerie.gates import machine, space
from ansible.module_utils.aerie.shared.checks import Checks

STACK: dict[str, Any] = {
    "name": "s", "python": ">=3.10,<3.14", "glibc": "2.28", "machine": "x86_64", "memory_bytes": 4_000_000_000,
    "shm_bytes": 256 << 20, "disk_bytes": 9_000_000_000,
}  # fmt: skip
FACTS = {"machine": "x86_64", "system": "Linux", "libc": "glibc 2.36", "memory": 8 << 30, "shm": 1 << 30}


def statuses(checks: Checks) -> dict[str, str]:
    return {check["name"]: check["status"] for check in checks.as_list()}


def test_python_is_found_by_running_each_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shim of an inactive version stands first on PATH, as pyenv has them."""
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\necho 'pyenv: python3.12: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/root")}
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    chosen, tried = pythons.find("", ">=3.10,<3.14", environment)
    assert tried[0].path == str(shim)
    assert "command not found" in tried[0].problem
    assert chosen is not None
    assert satisfies(chosen.version, ">=3.10,<3.14")


def test_a_named_python_that_does_not_fit_is_refused_with_what_is_wrong() -> None:
    checks = Checks()
    machine.judge_python(checks, pythons.facts("/usr/bin/env", ">=3.10,<3.14"), STACK)
    (check,) = [one.as_data() for one in checks.failed]
    assert "/usr/bin/env does not run" in check["found"]
    assert "ml_env_python" in check["remedy"]


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        ({}, set()),
        ({"libc": "glibc 2.27"}, {"glibc"}),
        ({"libc": ""}, {"glibc"}),
        ({"machine": "aarch64"}, {"machine"}),
        ({"memory": 1 << 30}, {"memory"}),
        ({"shm": 64 << 20}, {"shared memory"}),
    ],
)
def test_platform_and_memory(change: dict[str, Any], fails: set[str]) -> None:
    checks = Checks()
    machine.judge_platform(checks, {**FACTS, **change}, STACK)
    machine.judge_memory(checks, {**FACTS, **change}, STACK)
    assert {check.name for check in checks.failed} == fails
    assert all(check.remedy for check in checks.failed)


def test_memory_of_a_container_is_its_limit(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 2 kB\nMemAvailable:  1000000 kB\n")
    assert machine.memory_available(meminfo, tmp_path) == 1_024_000_000
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 100\n")
    (tmp_path / "memory.max").write_text("1000\n")
    assert machine.memory_available(meminfo, tmp_path) == 800
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.memory_available(meminfo, tmp_path) == 1_024_000_000


@pytest.mark.parametrize(
    ("skew", "status"), [(None, "n/a"), (2.0, "pass"), (-59.0, "pass"), (3600.0, "warn"), (-90.0, "warn")]
)
def test_clock(skew: float | None, status: str) -> None:
    checks = Checks()
    machine.judge_clock(checks, skew)
    assert statuses(checks) == {"clock": status}


def plan(tmp_path: Path, **more: Any) -> dict[str, Any]:
    paths = {"model": str(tmp_path / "model"), "data": str(tmp_path / "data.jsonl"), "output": str(tmp_path / "out")}
    numbers = {"layers": 4, "max_length": 512, "samples": 0, "hidden_size": 0, "model_bytes": 0, "bytes": 0}
    return {**paths, **numbers, "shard": "", **more}


def test_hidden_states_are_estimated_from_model_and_data(tmp_path: Path) -> None:
    assert space.states_need(plan(tmp_path)) is None
    (tmp_path / "data.jsonl").write_text("{}\n" * 100)
    assert space.states_need(plan(tmp_path)) is None
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(
        json.dumps({"hidden_size": 1, "text_config": {"hidden_size": 7168}})
    )
    need = space.states_need(plan(tmp_path))
    assert need is not None
    # States, input_ids and loss_mask of each token, and what a file of six tensors holds besides.
    assert need.amount == 100 * 512 * (4 * 7168 * 2 + 16) + 100 * (4096 + 6 * 1024)
    fewer = space.states_need(plan(tmp_path, samples=10))
    assert fewer is not None
    assert fewer.amount * 10 == need.amount
    shard = space.states_need(plan(tmp_path, samples=10, shard="2/3"))
    assert shard
    assert shard.amount * 10 == fewer.amount * 4
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "data_0.pt").write_bytes(b"x" * 1000)
    again = space.states_need(plan(tmp_path, samples=10))
    assert again is not None
    assert again.amount == fewer.amount - 1000
    given = space.states_need(plan(tmp_path, bytes=5))
    assert given is not None
    assert given.amount == 5


def test_disk_is_summed_over_what_shares_a_filesystem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "free_bytes", lambda _: 10_000_000_000)
    needs = [
        space.Need("environment", tmp_path / "a" / "b", 9_000_000_000, ""),
        space.Need("states", tmp_path, 2_000_000_000, ""),
    ]
    checks = Checks()
    space.judge(checks, needs)
    (check,) = [one.as_data() for one in checks.failed]
    assert "11.0 GB: environment 9.0 GB" in check["wanted"]
    assert "free 1.0 GB" in check["remedy"]
    good = Checks()
    space.judge(good, needs[:1])
    assert not good.failed


def test_a_model_that_is_fetched_needs_disk_until_it_is_there(tmp_path: Path) -> None:
    assert space.model_need(plan(tmp_path)) is None
    need = space.model_need(plan(tmp_path, model_bytes=400))
    assert need is not None
    assert need.amount == 400
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    assert space.model_need(plan(tmp_path, model_bytes=400)) is None


def test_an_environment_in_place_needs_no_disk(tmp_path: Path) -> None:
    assert space.environment_need(tmp_path, STACK).amount == 9_000_000_000
    assert space.environment_need(tmp_path, STACK, adopted=True).amount == 0
    (tmp_path / ".aerie").mkdir()
    (tmp_path / ".aerie" / "manifest.json").write_text('{"schema": 1, "stack": "s"}')
    assert space.environment_need(tmp_path, STACK).amount == 0
    assert space.environment_need(tmp_path, {**STACK, "name": "other"}).amount == 9_000_000_000

"""The rung truth itself, on the real engine: every architecture, tensor parallel 2, a small cache, and what it refuses.

Cases are drawn from a seed; AERIE_TRUTH_SEED repeats those of a run that failed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from overlay import Environment

from aerie_host.truth.names import ARCHITECTURES, NAMES
from tools.mutationkit.properties import Damage, damaged, damages

pytestmark = pytest.mark.stack
# Everything in one call, order and layers, and a stream after one that failed; test_faults asks for all cases.
CASES = ["mixed", "order", "files_failed", "bad_calls", "over"]


@pytest.fixture(scope="module")
def environment() -> Environment:
    return Environment(Path(os.environ["AERIE_TEST_ENV"]))


@pytest.fixture(scope="module")
def seed() -> int:
    return int(os.environ.get("AERIE_TRUTH_SEED") or random.SystemRandom().randrange(1_000_000))


@pytest.fixture(scope="module")
def everywhere(environment: Environment, seed: int) -> dict[str, Any]:
    code, document, log = environment.truth(
        architectures=ARCHITECTURES, cases=CASES, caches=["ample", "small"], seed=seed
    )
    assert "aerie" in document, (document, log[-3000:])
    return {"code": code, **document["aerie"]}


def hold(section: dict[str, Any], label: str, cases: list[str], seed: int) -> None:
    """Every check of one engine passes, and all cases were asked for."""
    print(f"AERIE_TRUTH_SEED={seed}")
    mine = {
        check["name"].removeprefix(f"{label}: "): check
        for check in section["checks"]
        if check["name"].startswith(f"{label}: ")
    }
    failed = [f"{check['name']}: {check['found']}" for check in mine.values() if check["status"] != "pass"]
    assert failed == [], f"repeat with AERIE_TRUTH_SEED={seed}"
    assert {NAMES[case] for case in cases if case in NAMES} <= set(mine)
    assert "the check can tell layers apart" in mine


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_states_are_the_models(everywhere: dict[str, Any], architecture: str, seed: int) -> None:
    hold(everywhere, architecture, CASES, seed)


def test_prefills_split_and_pre_empted(everywhere: dict[str, Any], seed: int) -> None:
    label = "llama, small cache"
    hold(everywhere, label, ["mixed", "files_failed"], seed)
    assert any(check["name"] == f"{label}: prefills were split and pre-empted" for check in everywhere["checks"])


def test_tensor_parallel_2(environment: Environment, seed: int) -> None:
    code, document, log = environment.truth(
        architectures=["llama"],
        tensor_parallel_sizes=[2],
        cases=["mixed", "order"],
        caches=["ample"],
        seed=seed,
    )
    assert code == 0, (document, log[-3000:])
    hold(document["aerie"], "llama, tensor parallel 2", ["mixed", "order"], seed)


def test_the_seed_is_in_the_report(everywhere: dict[str, Any], seed: int) -> None:
    assert everywhere["code"] == 0
    assert everywhere["data"]["seed"] == seed
    assert {report["seed"] for report in everywhere["data"]["reports"]} == {seed}
    layers = everywhere["data"]["reports"][0]["layer_ids"]
    assert layers != sorted(layers)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            {"architectures": ["llama", "mamba"]},
            "truth: unknown architectures: mamba; wanted some of llama, qwen3",
        ),
        ({"architectures": []}, "truth: neither a model nor an architecture is named"),
        ({"architectures": ["llama"], "cases": ["every"]}, "truth: unknown cases: every; wanted some of one, mixed"),
        ({"architectures": ["llama"], "caches": ["huge"]}, "truth: unknown caches: huge; wanted some of ample, small"),
    ],
)
def test_what_it_does_not_know_is_refused_by_name(environment: Environment, spec: dict[str, Any], says: str) -> None:
    """Before a model is built: llama, named beside it, is not run either."""
    code, document, log = environment.truth(**spec)
    assert code == 2
    assert says in document["msg"]
    assert "asked for" not in log


@pytest.mark.parametrize("damage", damages(), ids=lambda damage: damage.damage)
def test_a_declared_damage_fits_the_environment(environment: Environment, damage: Damage) -> None:
    """The mutation table cannot rot unseen: every text to be damaged stands there once, and what is left compiles."""
    for path, content in damaged(environment.site_packages, damage.edits).items():
        compile(content, path, "exec")

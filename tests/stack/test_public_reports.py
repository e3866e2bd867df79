"""Reports by people who met these faults in public, each with the input that shows it, through the real stack."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from overlay import ROOT, Environment

pytestmark = pytest.mark.stack


def figures(architecture: str, folder: Path) -> dict[str, Any]:
    environment = Environment(Path(os.environ["AERIE_TEST_ENV"]))
    done = environment.run([str(ROOT / "tests" / "stack" / "public_reports.py"), str(folder), architecture])
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return figures("llama", tmp_path_factory.mktemp("llama"))


def test_br_01_a_batch_gives_what_each_sequence_gives_alone(llama: dict[str, Any]) -> None:
    assert llama["order"]
    assert llama["cosine"] > 0.999


def test_br_02_sliding_window_attention(tmp_path: Path) -> None:
    found = figures("gemma3", tmp_path)
    assert found["window"] == [[64, 128]] * 4
    assert found["cosine"] > 0.999


def test_br_04_three_calls_of_one_generator(llama: dict[str, Any]) -> None:
    assert llama["calls"]


def test_br_05_one_two_dimensional_tensor_per_layer(llama: dict[str, Any]) -> None:
    assert llama["layers"] == [4]
    assert llama["dimensions"] == [2]


def test_br_06_the_head_wants_the_norm_of_the_last_state(llama: dict[str, Any]) -> None:
    assert llama["greedy"] > 0.95


def test_br_13_a_state_holds_its_own_rows_only(llama: dict[str, Any]) -> None:
    assert llama["storages"] == 1.0

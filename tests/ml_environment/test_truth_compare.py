"""The comparison itself, damaged in every way that extraction has been wrong in."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from aerie_host.checkpoint.reference_forward import Forward, Rounding
from aerie_host.truth import checkpoints
from aerie_host.truth.cases import cases, layer_ids
from aerie_host.truth.compare import Comparison, compare, separation
from aerie_host.truth.names import ARCHITECTURES, NAMES

LAYERS, HIDDEN = 6, 64
ASKED = [3, 0, 5, 3]


def forward(layers: torch.Tensor) -> Forward:
    return Forward(layers, torch.zeros_like(layers[0]), torch.nn.functional.rms_norm(layers[-1], (HIDDEN,)))


@pytest.fixture
def exact() -> list[Forward]:
    """Three sequences as a model would give them: each layer adds to the one before it."""
    torch.manual_seed(1)
    return [forward(torch.randn(LAYERS, length, HIDDEN).cumsum(0)) for length in (5, 9, 9)]


@pytest.fixture
def rounding(exact: list[Forward]) -> Rounding:
    found = Rounding()
    for one in exact:
        found.add(forward(one.layers.bfloat16().float()), one)
    return found


@pytest.fixture
def captured(exact: list[Forward]) -> list[list[torch.Tensor]]:
    return [[one.layers[layer].bfloat16() for layer in ASKED] for one in exact]


def judge(captured: list[list[torch.Tensor]], exact: list[Forward], rounding: Rounding) -> Comparison:
    return compare(captured, exact, ASKED, rounding)


def test_right_states_pass(captured, exact, rounding):
    result = judge(captured, exact, rounding)
    assert result.findings == []
    assert result.rows == (5 + 9 + 9) * len(ASKED)
    assert 0 < result.share <= 1


def test_one_damaged_row_in_one_layer(captured, exact, rounding):
    captured[1][2][4] *= 1.05
    findings = judge(captured, exact, rounding).findings
    assert len(findings) == 1
    assert "sequence 1, layer 5: row 4 differs by" in findings[0]


def test_one_nan(captured, exact, rounding):
    captured[0][1][2, 3] = torch.nan
    assert "sequence 0, layer 0: row 2" in judge(captured, exact, rounding).findings[0]


def test_two_sequences_swapped(captured, exact, rounding):
    captured[1], captured[2] = captured[2], captured[1]
    findings = judge(captured, exact, rounding).findings
    assert "sequence 1, layer 3: holds layer 3 of sequence 2" in findings


def test_two_layers_swapped(captured, exact, rounding):
    captured[0][0], captured[0][1] = captured[0][1], captured[0][0]
    findings = judge(captured, exact, rounding).findings
    assert "saved as layer 3, equals the output of layer 0" in findings[0]


def test_off_by_one_is_said_in_words(captured, exact, rounding):
    captured[2][0] = exact[2].layers[2].bfloat16()
    assert "saved as layer 3, equals the output of layer 2: off by one" in judge(captured, exact, rounding).findings[0]


def test_residual_left_out(captured, exact, rounding):
    updates = exact[0].layers.diff(dim=0, prepend=torch.zeros_like(exact[0].layers[:1]))
    exact[0] = dataclasses.replace(exact[0], updates=updates)
    captured[0][2] = updates[5].bfloat16()
    assert (
        "sequence 0, layer 5: saved as layer 5, equals the update of layer 5 without its residual"
        in judge(captured, exact, rounding).findings[0]
    )


def test_a_row_of_another_sequence_is_named(captured, exact, rounding):
    captured[1][2][4] = captured[0][2][3]
    findings = judge(captured, exact, rounding).findings
    assert len(findings) == 1
    assert "sequence 1, layer 5: row 4 differs by" in findings[0]
    assert findings[0].endswith(": it is row 3 of sequence 0")


def test_a_row_taken_twice_is_named(captured, exact, rounding):
    captured[1][2][4] = captured[1][2][3]
    assert judge(captured, exact, rounding).findings[0].endswith(": it is row 3 of the same sequence")


def test_last_layer_after_the_final_norm(captured, exact, rounding):
    captured[0][2] = exact[0].final.bfloat16()
    assert "saved as layer 5, equals the output of the final norm" in judge(captured, exact, rounding).findings[0]


def test_rows_missing(captured, exact, rounding):
    captured[1][0] = captured[1][0][:-1]
    assert "shape [8, 64], wanted [9, 64]" in judge(captured, exact, rounding).findings[0]


def test_a_layer_missing(captured, exact, rounding):
    captured[1].pop()
    assert judge(captured, exact, rounding).findings == ["sequence 1: 3 layers, asked for 4"]


def test_a_sequence_missing(captured, exact, rounding):
    captured.pop()
    assert judge(captured, exact, rounding).findings == ["2 results for 3 sequences"]


def test_another_dtype(captured, exact, rounding):
    captured[0][0] = captured[0][0].float()
    assert "torch.float32, wanted torch.bfloat16" in judge(captured, exact, rounding).findings[0]


def test_layers_too_alike_are_seen(exact, rounding):
    assert separation(exact) > 2 * rounding.row_bound(LAYERS - 1)
    alike = [forward(one.layers[:1].expand(LAYERS, -1, -1)) for one in exact]
    assert separation(alike) == 0


@pytest.mark.parametrize("seed", range(1, 6))
def test_cases_hold_what_they_are_called_after(seed: int) -> None:
    plan = {case.key: case.sequences for case in cases(seed, 384, 128, 16, 8192)}
    assert list(plan) == list(NAMES)
    assert len(plan["many"]) > 128
    assert sum(map(len, plan["budget"])) > 8192
    mixed = plan["mixed"]
    assert {1, 2, 383, 384} <= set(map(len, mixed))
    assert any(mixed.count(sequence) == 2 for sequence in mixed)
    assert mixed == plan["again"]
    long = [sequence for sequence in mixed if len(sequence) > 16]
    assert any(a[:16] == b[:16] for a in long for b in long if a != b)
    assert len(plan["order"]) > 10
    assert len(set(map(len, plan["order"]))) == 1


def test_every_architecture_has_a_checkpoint() -> None:
    assert tuple(checkpoints.ARCHITECTURES) == ARCHITECTURES


def test_a_seed_gives_the_same_cases_again_and_another_gives_others() -> None:
    drawn = [(cases(seed, 384, 128, 16, 8192), layer_ids(seed, 6)) for seed in (7, 7, 8)]
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[2][0]
    assert len({tuple(layer_ids(seed, 6)) for seed in range(20)}) > 5


@pytest.mark.parametrize("seed", range(20))
def test_layers_are_out_of_order_and_one_is_asked_twice(seed: int) -> None:
    asked = layer_ids(seed, 6)
    assert asked != sorted(asked)
    assert {0, LAYERS - 1} < set(asked)
    assert len(set(asked)) < len(asked)

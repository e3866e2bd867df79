"""The comparison itself, damaged in every way that extraction has been wrong in."""

from __future__ import annotations

import pytest
import torch

from aerie_host.reference import Forward, Rounding
from aerie_host.truth.cases import batches
from aerie_host.truth.compare import Comparison, compare, separation

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
    assert any("it is layer 3 of sequence 2" in finding for finding in findings)


def test_two_layers_swapped(captured, exact, rounding):
    captured[0][0], captured[0][1] = captured[0][1], captured[0][0]
    findings = judge(captured, exact, rounding).findings
    assert "saved as layer 3, nearest to the output of layer 0" in findings[0]


def test_off_by_one_is_said_in_words(captured, exact, rounding):
    captured[2][0] = exact[2].layers[2].bfloat16()
    assert (
        "saved as layer 3, nearest to the output of layer 2: off by one" in judge(captured, exact, rounding).findings[0]
    )


def test_residual_left_out(captured, exact, rounding):
    captured[0][2] = (exact[0].layers[5] - exact[0].layers[4]).bfloat16()
    assert "sequence 0, layer 5" in judge(captured, exact, rounding).findings[0]


def test_last_layer_after_the_final_norm(captured, exact, rounding):
    captured[0][2] = exact[0].final.bfloat16()
    assert "saved as layer 5, nearest to the output of the final norm" in judge(captured, exact, rounding).findings[0]


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


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_batches_hold_the_cases_they_name(seed: int) -> None:
    plan = {batch.name: batch.sequences for batch in batches(seed, 384, 32, 16, 8192)}
    assert len(plan["more sequences than the engine runs at once"]) > 32
    assert sum(map(len, plan["more tokens than one step takes"])) > 8192
    mixed = plan["shared prefixes, equal sequences, mixed lengths"]
    assert {1, 2, 383, 384} <= set(map(len, mixed))
    assert any(mixed.count(sequence) == 2 for sequence in mixed)
    assert mixed == plan["the same call again"]

"""Compare a case with the reference; for a wrong state, look for the sequence, layer or row that it matches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from aerie_host.checkpoint.reference_forward import Difference, Forward, Rounding, measure, row_errors

# The search goes through every row of every sequence, so it is made for the findings that are shown, not for thousands.
SEARCHED = 5


@dataclass
class Comparison:
    """One case compared.

    Attributes:
        findings: a sentence for each wrong state.
        rows: how many rows were compared.
        largest: the largest relative distance of a row.
        share: the largest distance of a row as a share of its bound; above 1 is a finding.
        layers: the largest relative distance of a row, by decoder layer.
    """

    findings: list[str] = field(default_factory=list)
    rows: int = 0
    largest: float = 0.0
    share: float = 0.0
    layers: dict[int, float] = field(default_factory=dict)


def compare(
    captured: list[list[torch.Tensor]], exact: list[Forward], layer_ids: list[int], rounding: Rounding
) -> Comparison:
    """Compare every captured row with a float32 forward of the same sequence.

    Args:
        captured: for each sequence, one tensor ``[seq, hidden]`` per layer id.
        exact: for each sequence, its forward.
        layer_ids: the decoder layers asked for, in order.
        rounding: what rounding does to these sequences.
    """
    result = Comparison()
    if len(captured) != len(exact):
        result.findings.append(f"{len(captured)} results for {len(exact)} sequences")
        return result
    for index, states in enumerate(captured):
        if len(states) != len(layer_ids):
            result.findings.append(f"sequence {index}: {len(states)} layers, asked for {len(layer_ids)}")
            continue
        for state, layer in zip(states, layer_ids, strict=True):
            difference = measure(f"sequence {index}", state, exact[index], layer)
            result.rows += difference.rows
            if math.isfinite(difference.worst):
                result.layers[layer] = max(result.layers.get(layer, 0.0), difference.worst)
            problem = rounding.problem(difference)
            if problem:
                if not difference.unfit and len(result.findings) < SEARCHED:
                    problem = _whose(difference, state, exact, index, rounding) or problem
                result.findings.append(problem)
            elif difference.rows:
                result.largest = max(result.largest, difference.worst)
                result.share = max(result.share, difference.worst / rounding.row_bound(layer))
    return result


def _whose(difference: Difference, state: torch.Tensor, exact: list[Forward], index: int, rounding: Rounding) -> str:
    """Name the other sequence whose state this is, or the row that the worst row matches; empty when there is none."""
    for other, forward in enumerate(exact):
        if other == index or forward.layers.shape != exact[index].layers.shape:
            continue
        for layer, rows in enumerate(forward.layers):
            if float(row_errors(state, rows).nan_to_num(torch.inf, torch.inf).amax()) <= rounding.row_bound(layer):
                return f"{difference.where}, layer {difference.layer}: holds layer {layer} of sequence {other}"
    bound = rounding.row_bound(difference.layer)
    if difference.nearest.worst <= bound:
        return ""
    for other, forward in enumerate(exact):
        errors = row_errors(state[difference.row], forward.layers[difference.layer]).nan_to_num(torch.inf, torch.inf)
        row = int(errors.argmin())
        if float(errors[row]) <= bound:
            owner = "the same sequence" if other == index else f"sequence {other}"
            return f"{rounding.problem(difference)}: it is row {row} of {owner}"
    return ""


def separation(exact: list[Forward]) -> float:
    """The smallest distance between the outputs of neighbouring layers: a mix-up of layers shows at least this."""
    return min(float(row_errors(forward.layers[:-1], forward.layers[1:]).amax(-1).min()) for forward in exact)

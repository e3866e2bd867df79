"""Hold what was captured against the reference, and say in words what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from aerie_host.truth.reference import best_layer, row_errors


@dataclass
class Comparison:
    """The findings of one or more batches.

    Attributes:
        findings: one sentence for each state that is not what was asked for.
        rows: how many rows were compared.
        worst: the largest row distance over its bound; above 1 is a finding.
        largest: the largest row distance.
        per_layer: the largest row distance of each decoder layer id.

    """

    findings: list[str]
    rows: int
    worst: float
    largest: float
    per_layer: dict[int, float]


def compare(
    captured: list[list[torch.Tensor]],
    exact: list[torch.Tensor],
    layer_ids: list[int],
    bounds: list[float],
) -> Comparison:
    """Compare every captured row with a float32 forward of the same sequence.

    Args:
        captured: for each sequence, one tensor ``[seq, hidden]`` per layer id.
        exact: for each sequence, the output of every decoder layer, ``[layers, seq, hidden]``.
        layer_ids: the layers asked for, in order.
        bounds: for each decoder layer, the largest relative row distance that is rounding.

    """
    result = Comparison([], 0, 0.0, 0.0, {})
    if len(captured) != len(exact):
        result.findings.append(f"{len(captured)} results for {len(exact)} sequences")
        return result
    for index, states in enumerate(captured):
        if len(states) != len(layer_ids):
            result.findings.append(f"sequence {index}: {len(states)} layers, asked for {len(layer_ids)}")
            continue
        for place, layer_id in enumerate(layer_ids):
            _one(result, index, states[place], exact, layer_id, bounds)
    return result


def _one(
    result: Comparison, index: int, state: torch.Tensor, exact: list[torch.Tensor], layer_id: int, bounds: list[float]
) -> None:
    where = f"sequence {index}, layer {layer_id}"
    wanted = exact[index][layer_id]
    if state.shape != wanted.shape:
        result.findings.append(f"{where}: shape {list(state.shape)}, wanted {list(wanted.shape)}")
        return
    if state.dtype != torch.bfloat16:
        result.findings.append(f"{where}: {state.dtype}, wanted torch.bfloat16")
        return
    errors = row_errors(state, wanted)
    row = int(errors.nan_to_num(torch.inf).argmax())
    error = float(errors[row])
    bound = bounds[layer_id]
    result.rows += len(errors)
    if error <= bound:
        result.worst = max(result.worst, error / bound)
        result.largest = max(result.largest, error)
        result.per_layer[layer_id] = max(result.per_layer.get(layer_id, 0.0), error)
        return
    result.worst = max(result.worst, error / bound)
    result.findings.append(
        f"{where}: row {row} differs by {error:.1%}, rounding explains {bound:.1%} "
        f"({int((errors > bound).sum())} of {len(errors)} rows){_looks_like(index, state, exact, layer_id, bounds)}"
    )


def _looks_like(index: int, state: torch.Tensor, exact: list[torch.Tensor], layer_id: int, bounds: list[float]) -> str:
    """Name the layer or sequence that the state really is, where there is one."""
    nearest, error = best_layer(state, exact[index])
    if nearest != layer_id and error <= bounds[nearest]:
        return f"; saved as layer {layer_id}, equals the output of layer {nearest}"
    for other, states in enumerate(exact):
        if other != index and states.shape == exact[index].shape:
            nearest, error = best_layer(state, states)
            if error <= bounds[nearest]:
                return f"; it is layer {nearest} of sequence {other}"
    return ""


def separation(exact: list[torch.Tensor]) -> float:
    """The smallest distance between neighbouring layers' outputs: what a mix-up of layers would show at least."""
    return min(
        float(row_errors(states[layer], states[layer + 1]).amax())
        for states in exact
        for layer in range(len(states) - 1)
    )

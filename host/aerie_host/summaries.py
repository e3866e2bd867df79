"""Numbers for the report's plots, gathered while other work goes through the data anyway."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

BINS = 16
POINTS = 100


def histogram(lengths: Sequence[int]) -> dict[str, Any]:
    """Samples by length in tokens, in bins of equal and round width; one edge more than counts."""
    if not lengths:
        return {}
    longest = max(lengths)
    width = next(step for step in _round_widths() if step * BINS > longest)
    counts = [0] * (longest // width + 1)
    for length in lengths:
        counts[length // width] += 1
    return {"edges": [number * width for number in range(len(counts) + 1)], "counts": counts}


def _round_widths() -> Any:
    power = 1
    while True:
        yield from (power, 2 * power, 4 * power)
        power *= 8


class LayerStatistics:
    """Mean and spread of the norms of rows, per captured layer, over any number of files."""

    def __init__(self, layers: Sequence[int]) -> None:
        self._layers = list(layers)
        self._sums = [(0, 0.0, 0.0) for _ in self._layers]

    def add(self, hidden_states: Sequence[torch.Tensor]) -> None:
        """Take in one sample: per layer asked, states ``[seq, hidden]``."""
        for number, states in enumerate(hidden_states[: len(self._layers)]):
            norms = states.float().norm(dim=1).double()
            rows, total, squares = self._sums[number]
            self._sums[number] = (
                rows + norms.numel(),
                total + float(norms.sum()),
                squares + float((norms * norms).sum()),
            )

    def as_list(self) -> list[dict[str, Any]]:
        """``[{layer, norm, spread}]`` for each layer of which rows were seen."""
        found = []
        for layer, (rows, total, squares) in zip(self._layers, self._sums, strict=True):
            if rows:
                mean = total / rows
                spread = math.sqrt(max(0.0, squares / rows - mean * mean))
                found.append({"layer": layer, "norm": round(mean, 4), "spread": round(spread, 4)})
        return found


class Throughput:
    """Tokens per second over time, thinned to what a plot can show."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, int]] = []

    def add(self, seconds: float, tokens: int) -> None:
        """A batch of ``tokens`` was finished ``seconds`` after the start."""
        self._ends.append((seconds, tokens))

    def points(self) -> list[dict[str, float]]:
        """``[{seconds, tokens_per_s}]``: neighbours are joined where there are more than can be shown."""
        join = math.ceil(len(self._ends) / POINTS) or 1
        points, before = [], 0.0
        for start in range(0, len(self._ends), join):
            group = self._ends[start : start + join]
            end, tokens = group[-1][0], sum(count for _, count in group)
            if end > before:
                points.append({"seconds": round(end, 2), "tokens_per_s": round(tokens / (end - before), 1)})
                before = end
        return points

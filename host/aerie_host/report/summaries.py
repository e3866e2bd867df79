"""Numbers for the report's plots, collected while a command reads or writes the samples."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

BINS = 16
POINTS = 50


def histogram(lengths: Sequence[int]) -> dict[str, Any]:
    """Count samples by length in tokens, in bins of equal, round width.

    Returns ``{edges, counts}``, with one edge more than counts; empty without samples.
    """
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


class LayerSum(NamedTuple):
    """Sums over the norms of one layer's states (one norm for each token). Sums of several files add up."""

    rows: int
    total: float
    squares: float
    least: float
    most: float

    @classmethod
    def of(cls, norms: torch.Tensor) -> LayerSum:
        """Sum up norms ``[seq]``."""
        values = norms.double()
        total, squares = float(values.sum()), float((values * values).sum())
        return cls(values.numel(), total, squares, float(values.min()), float(values.max()))

    def plus(self, other: LayerSum) -> LayerSum:
        """The sums of both."""
        return LayerSum(
            self.rows + other.rows,
            self.total + other.total,
            self.squares + other.squares,
            min(self.least, other.least),
            max(self.most, other.most),
        )


class LayerStatistics:
    """Mean, spread and extremes of the norms of states, for each layer, over any number of files."""

    def __init__(self, layers: Sequence[int]) -> None:
        self._layers = list(layers)
        self._sums: list[LayerSum | None] = [None for _ in self._layers]

    def add(self, sums: Sequence[LayerSum]) -> None:
        """Add the sums of one sample, one for each layer."""
        for number, layer_sum in enumerate(sums):
            before = self._sums[number]
            self._sums[number] = before.plus(layer_sum) if before else layer_sum

    def as_list(self) -> list[dict[str, Any]]:
        """``[{layer, norm, spread, least, most, rows}]`` for each layer with states; ``rows`` counts them."""
        found = []
        for layer, sums in zip(self._layers, self._sums, strict=True):
            if sums is None:
                continue
            mean = sums.total / sums.rows
            spread = math.sqrt(max(0.0, sums.squares / sums.rows - mean * mean))
            values = {"norm": mean, "spread": spread, "least": sums.least, "most": sums.most}
            found.append(
                {"layer": layer, **{name: round(value, 4) for name, value in values.items()}, "rows": sums.rows}
            )
        return found


class Throughput:
    """Tokens per second over time, at most about 50 points: as many as a plot can show."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, int]] = []

    def add(self, seconds: float, tokens: int) -> None:
        """A batch of ``tokens`` was finished ``seconds`` after the start."""
        self._ends.append((seconds, tokens))

    def points(self) -> list[dict[str, float]]:
        """``[{seconds, tokens_per_s}]``: each point has the mean speed since the point before.

        Points are at least a fiftieth of the whole time apart. Several writers may finish at the same moment, but their
        samples were not extracted in that moment.
        """
        width = self._ends[-1][0] / POINTS if self._ends else 0.0
        groups: list[tuple[float, int]] = []
        before, tokens = 0.0, 0
        for end, count in self._ends:
            tokens += count
            if end - before >= width and end > before:
                groups.append((end, tokens))
                before, tokens = end, 0
        if tokens and groups:
            _, last = groups.pop()
            groups.append((self._ends[-1][0], last + tokens))
        starts = [0.0, *[end for end, _ in groups]]
        return [
            {"seconds": round(end, 2), "tokens_per_s": round(count / (end - start), 1)}
            for start, (end, count) in zip(starts, groups, strict=False)
        ]

"""Statistics per layer, gathered file by file, against the same worked out at once."""

from __future__ import annotations

import pytest
import torch

from aerie_host.report.summaries import LayerStatistics, LayerSum


def test_statistics_of_many_files_are_those_of_all_rows_together() -> None:
    generator = torch.Generator().manual_seed(3)
    layers = [29, 2]
    files = [
        [torch.randn(rows, 16, generator=generator).to(torch.bfloat16) * scale for scale in (1, 40)]
        for rows in (1, 7, 90)
    ]
    statistics = LayerStatistics(layers)
    for states in files:
        statistics.add([LayerSum.of(one.float().norm(dim=1)) for one in states])
    for number, found in enumerate(statistics.as_list()):
        norms = torch.cat([states[number] for states in files]).float().norm(dim=1)
        assert found["layer"] == layers[number]
        assert found["norm"] == pytest.approx(norms.mean().item(), rel=1e-3)
        assert (found["rows"], found["least"]) == (98, pytest.approx(norms.min().item(), rel=1e-3))
        assert found["spread"] == pytest.approx(norms.std(unbiased=False).item(), rel=1e-3)


def test_a_layer_without_rows_is_left_out() -> None:
    assert LayerStatistics([1, 2]).as_list() == []

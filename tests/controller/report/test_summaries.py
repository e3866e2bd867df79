"""What the host gathers for the plots."""

from __future__ import annotations

import pytest

from aerie_host.report.summaries import POINTS, Throughput, histogram


@pytest.mark.parametrize("lengths", [[1], [0, 5], list(range(1, 513)), [7] * 9, [1, 70_000]])
def test_every_sample_is_in_one_bin(lengths: list[int]) -> None:
    bins = histogram(lengths)
    edges, counts = bins["edges"], bins["counts"]
    assert sum(counts) == len(lengths)
    assert len(edges) == len(counts) + 1 <= 18
    assert edges[0] <= min(lengths) <= max(lengths) < edges[-1]
    for number, count in enumerate(counts):
        assert count == sum(edges[number] <= one < edges[number + 1] for one in lengths)


def test_no_sample_is_no_histogram() -> None:
    assert histogram([]) == {}


def test_throughput_is_tokens_of_a_batch_by_its_time() -> None:
    speed = Throughput()
    for end, tokens in ((2.0, 800), (3.0, 500)):
        speed.add(end, tokens)
    assert speed.points() == [{"seconds": 2.0, "tokens_per_s": 400.0}, {"seconds": 3.0, "tokens_per_s": 500.0}]


def test_many_batches_are_joined_and_no_token_is_lost() -> None:
    speed = Throughput()
    for number in range(1, 1002):
        speed.add(number * 0.5, 100)
    points = speed.points()
    assert len(points) <= POINTS
    assert {one["tokens_per_s"] for one in points} == {200.0}
    assert points[-1]["seconds"] == 500.5


def test_what_writers_finish_at_once_is_no_peak() -> None:
    speed = Throughput()
    for end, tokens in ((50.0, 5000), (100.0, 5000), (100.1, 900), (100.2, 900)):
        speed.add(end, tokens)
    assert speed.points() == [
        {"seconds": 50.0, "tokens_per_s": 100.0},
        {"seconds": 100.2, "tokens_per_s": round(6800 / 50.2, 1)},
    ]


def test_nothing_extracted_is_no_point() -> None:
    assert Throughput().points() == []

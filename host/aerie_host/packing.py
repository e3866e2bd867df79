"""Grouping samples into batches, and what a batch costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerie_host.samples import Sample

BYTES_PER_STATE = 2
# input_ids and loss_mask are int64.
BYTES_PER_TOKEN_BESIDES = 16
# Names, pickle and alignment of one .pt file, and of each tensor in it; upper bounds of what was measured.
BYTES_PER_FILE = 2048
BYTES_PER_TENSOR = 512


def pack(samples: Sequence[Sample], token_budget: int) -> list[list[Sample]]:
    """Batches of at most ``token_budget`` tokens (a single longer sample is one of its own), longest samples first.

    Similar lengths share a batch, and a batch that does not fit into memory shows at the start, not after a day.
    """
    batches: list[list[Sample]] = []
    current: list[Sample] = []
    used = 0
    for sample in sorted(samples, key=lambda one: (-len(one.input_ids), one.index)):
        length = len(sample.input_ids)
        if current and used + length > token_budget:
            batches.append(current)
            current, used = [], 0
        current.append(sample)
        used += length
    return [*batches, current] if current else batches


def bytes_per_token(layers: int, hidden_size: int) -> int:
    """Bytes on disk that one token takes."""
    return layers * hidden_size * BYTES_PER_STATE + BYTES_PER_TOKEN_BESIDES


def bytes_on_disk(samples: Sequence[Sample], layers: int, hidden_size: int) -> int:
    """Bytes that these samples take as files, at most."""
    tokens = sum(len(sample.input_ids) for sample in samples)
    return tokens * bytes_per_token(layers, hidden_size) + len(samples) * (
        BYTES_PER_FILE + (layers + 2) * BYTES_PER_TENSOR
    )

"""The order in which samples fill steps, and what they cost on disk."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerie_host.data.samples import Sample

BYTES_PER_STATE = 2
# input_ids and loss_mask are int64.
BYTES_PER_TOKEN_BESIDES = 16
# Names, pickle and alignment of one .pt file, and of each tensor in it; upper bounds of what was measured.
BYTES_PER_FILE = 2048
BYTES_PER_TENSOR = 512


def order(samples: Sequence[Sample], step_tokens: int) -> list[Sample]:
    """Samples in the order in which steps of ``step_tokens`` tokens are full: the longest, then the shortest that fit.

    A step takes so many sequences and no more; short samples alone would leave it half empty. Beginning with the
    longest, a step that does not fit into memory shows at the start, not after a day.
    """
    left = collections.deque(sorted(samples, key=lambda one: (-len(one.input_ids), one.index)))
    ordered: list[Sample] = []
    while left:
        ordered.append(left.popleft())
        used = len(ordered[-1].input_ids)
        while left and used + len(left[0].input_ids) <= step_tokens:
            ordered.append(left.popleft())
            used += len(ordered[-1].input_ids)
        while left and used + len(left[-1].input_ids) <= step_tokens:
            ordered.append(left.pop())
            used += len(ordered[-1].input_ids)
    return ordered


def bytes_per_token(layers: int, hidden_size: int) -> int:
    """Bytes on disk that one token takes."""
    return layers * hidden_size * BYTES_PER_STATE + BYTES_PER_TOKEN_BESIDES


def bytes_on_disk(samples: Sequence[Sample], layers: int, hidden_size: int) -> int:
    """Bytes that these samples take as files, at most."""
    tokens = sum(len(sample.input_ids) for sample in samples)
    return tokens * bytes_per_token(layers, hidden_size) + len(samples) * (
        BYTES_PER_FILE + (layers + 2) * BYTES_PER_TENSOR
    )

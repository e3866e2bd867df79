"""The order in which samples fill steps, and what they cost on disk."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from aerie_host.shared import sample_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerie_host.data.samples import Sample


def order(samples: Sequence[Sample], step_tokens: int) -> list[Sample]:
    """Samples in the order in which steps of ``step_tokens`` tokens are full: the longest, then the shortest that fit.

    A step takes so many sequences and no more; short samples alone would leave it half empty. Beginning with the
    longest, a step that does not fit into memory shows at the start, not after a day.
    """
    left = collections.deque(sorted(samples, key=lambda sample: (-len(sample.input_ids), sample.index)))
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


def bytes_on_disk(samples: Sequence[Sample], layers: int, hidden_size: int) -> int:
    """Bytes that these samples take as files, at most."""
    tokens = sum(len(sample.input_ids) for sample in samples)
    return sample_size.bytes_of_samples(len(samples), tokens, layers, hidden_size)

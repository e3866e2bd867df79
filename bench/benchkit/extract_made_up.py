"""An engine without a model: the same rows again and again, as fast as somebody takes them."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch

from aerie_host.extract.engine import Span, VllmEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

# Steps that the true engine has not handed on when it asks for the next slab.
BEHIND = 3


class MadeUpEngine(VllmEngine):
    """Slabs as vLLM's workers fill them, of random numbers."""

    def __init__(self, layers: list[int], step_tokens: int, hidden: int) -> None:
        from speculators.data_generation.slabs import Slabs

        slabs = Slabs(layers, step_tokens, hidden, torch.bfloat16)
        for slab in range(slabs.count):
            for slot in range(len(slabs.layers)):
                slabs.rows(slab, slot, 0, step_tokens).normal_()
        self.step_tokens = step_tokens
        super().__init__(SimpleNamespace(slabs=slabs))

    def stream(
        self, sequences: Iterable[tuple[str, list[int]]], free_slab: Callable[[], int]
    ) -> Generator[list[Span], None, None]:
        """Full steps, but no sequence is spread over two."""
        steps: deque[list[Span]] = deque()
        used = self.step_tokens
        for name, ids in sequences:
            if used + len(ids) > self.step_tokens:
                if len(steps) > BEHIND:
                    yield steps.popleft()
                steps.append([])
                slab, used = free_slab(), 0
            steps[-1].append(Span(name, slab, 0, used, used + len(ids)))
            used += len(ids)
        yield from steps

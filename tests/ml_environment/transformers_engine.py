"""An engine over Transformers: real states in shared memory, from a model that loads in a second."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Generator, Iterable
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from aerie_host.extract.engine import Span
from aerie_host.extract.writer_process import Area

SLABS = 3


class TransformersEngine:
    """Steps of ``step_tokens`` tokens; a sequence that does not fit goes on in the next step, as in vLLM."""

    def __init__(self, model: str, layer_ids: list[int], step_tokens: int) -> None:
        self.layer_ids = layer_ids
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()
        self.hidden = self.model.config.hidden_size
        self.tokens = step_tokens
        self._row = self.hidden * 2
        nbytes = SLABS * len(layer_ids) * step_tokens * self._row
        self._fd = os.memfd_create("test")
        os.ftruncate(self._fd, nbytes)
        self._memory = mmap.mmap(self._fd, nbytes)
        self.area = Area(f"/proc/{os.getpid()}/fd/{self._fd}", nbytes, SLABS, self.hidden)
        self.steps: list[list[Span]] = []
        # How a test breaks what comes back.
        self.change_states: Callable[[list[torch.Tensor]], None] = lambda _states: None
        self.change_rows: Callable[[list[Span]], list[Span]] = lambda rows: rows

    def offsets(self, slab: int, row: int) -> list[int]:
        """See ``aerie_host.extract.engine.Engine``."""
        return [((slab * len(self.layer_ids) + n) * self.tokens + row) * self._row for n in range(len(self.layer_ids))]

    def stream(
        self, sequences: Iterable[tuple[str, list[int]]], free_slab: Callable[[], int]
    ) -> Generator[list[Span], None, None]:
        """See ``aerie_host.extract.engine.Engine``."""
        rows: list[Span] = []
        slab, used = free_slab(), 0
        for name, ids in sequences:
            states, done = self._states(ids), 0
            while done < len(ids):
                count = min(len(ids) - done, self.tokens - used)
                for offset, layer in zip(self.offsets(slab, used), states, strict=True):
                    place = torch.frombuffer(
                        self._memory, dtype=torch.bfloat16, count=count * self.hidden, offset=offset
                    )
                    place.copy_(layer[done : done + count].reshape(-1))
                rows.append(Span(name, slab, done, used, used + count))
                done, used = done + count, used + count
                if used == self.tokens:
                    self.steps.append(rows)
                    yield self.change_rows(rows)
                    rows, slab, used = [], free_slab(), 0
        if rows:
            self.steps.append(rows)
            yield self.change_rows(rows)

    def _states(self, ids: list[int]) -> list[torch.Tensor]:
        seen: dict[int, torch.Tensor] = {}

        def keep(layer: int) -> Any:
            def hook(_module: Any, _inputs: Any, output: Any) -> None:
                state = output[0] if isinstance(output, tuple) else output
                seen[layer] = state.reshape(-1, self.hidden)

            return hook

        handles = [self.model.model.layers[layer].register_forward_hook(keep(layer)) for layer in self.layer_ids]
        with torch.no_grad():
            self.model(torch.tensor([ids]))
        for handle in handles:
            handle.remove()
        states = [seen[layer] for layer in self.layer_ids]
        self.change_states(states)
        return states

    def close(self) -> None:
        """Nothing else holds on to the model."""

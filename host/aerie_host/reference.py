"""Extracted states against an independent forward of the same checkpoint by Transformers, in float32.

Where the bound comes from: the target model computes in bfloat16, whose rounding is off by at most u = 2^-9 of a value.
A decoder layer rounds about eight times on the way (two norms, query-key-value, attention, output and its sum with the
residual, gate-up, down and its sum). Such errors are independent and grow with the square root of their number, so
after layer d a row's relative error is about u * sqrt(8 (d + 1)). Half of the rows must keep to that. Single rows lie
higher, those with a few huge values above all: the worst may have sixteen times as much, yet never more than one half
of the row itself; a row of another token, or of the next layer, is off by a quarter or more throughout.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import torch

from aerie_host.outcome import JobError

if TYPE_CHECKING:
    from pathlib import Path

UNIT_ROUNDOFF = 2.0**-9
ROUNDINGS_PER_LAYER = 8
WORST_ROW_FACTOR = 16
WORST_ROW_LIMIT = 0.5


def typical_bound(layer: int) -> float:
    """Largest relative error that the median row of decoder layer ``layer`` may have."""
    return UNIT_ROUNDOFF * math.sqrt(ROUNDINGS_PER_LAYER * (layer + 1))


def worst_bound(layer: int) -> float:
    """Largest relative error that any row may have."""
    return min(WORST_ROW_LIMIT, WORST_ROW_FACTOR * typical_bound(layer))


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far one layer of one file is from the reference: relative norms by row, and which layer fits best."""

    file: str
    layer: int
    median: float
    worst: float
    worst_row: int
    best: str

    @property
    def problem(self) -> str:
        """In words what is wrong; empty when the file holds what it says."""
        where = f"{self.file}, layer {self.layer}"
        if self.best != f"layer {self.layer}":
            note = ""
            if self.best in (f"layer {self.layer - 1}", f"layer {self.layer + 1}"):
                note = ": off by one"
            return f"{where}: holds the output of {self.best}, not of layer {self.layer}{note}"
        if self.median > typical_bound(self.layer):
            return f"{where}: median row differs by {self.median:.4f}, bound {typical_bound(self.layer):.4f}"
        if self.worst > worst_bound(self.layer):
            return f"{where}, row {self.worst_row}: differs by {self.worst:.4f}, bound {worst_bound(self.layer):.4f}"
        return ""


def row_differences(states: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Relative norm of the difference per row: ``[seq]`` float32 from two ``[seq, hidden]``."""
    reference = reference.float()
    return (states.float() - reference).norm(dim=1) / reference.norm(dim=1).clamp_min(1e-12)


def compare(
    file: str, layers: list[int], states: list[torch.Tensor], candidates: dict[str, torch.Tensor]
) -> list[Difference]:
    """Compare each extracted layer with every candidate (``layer 0`` and so on, ``[seq, hidden]`` float32)."""
    differences = []
    for layer, tensor in zip(layers, states, strict=True):
        medians = {name: float(row_differences(tensor, rows).median()) for name, rows in candidates.items()}
        rows = row_differences(tensor, candidates[f"layer {layer}"])
        row = int(rows.argmax())
        best = min(medians, key=lambda name: medians[name])
        differences.append(Difference(file, layer, medians[f"layer {layer}"], float(rows[row]), row, best))
    return differences


class ReferenceModel:
    """The checkpoint under Transformers with a hook on every decoder layer."""

    def __init__(self, model: Path, num_layers: int, trust_remote_code: bool) -> None:
        from transformers import AutoModelForCausalLM

        self._model: Any = AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.float32, trust_remote_code=trust_remote_code
        )
        self._model.eval()
        lists = [
            (name, module)
            for name, module in self._model.named_modules()
            if isinstance(module, torch.nn.ModuleList) and len(module) == num_layers and name.endswith("layers")
        ]
        if len(lists) != 1:
            raise JobError(f"{model}: {len(lists)} lists of {num_layers} decoder layers under Transformers, wanted one")
        self._layers = lists[0][1]

    def candidates(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Output ``[seq, hidden]`` of every decoder layer, the embedding, and the last one after the final norm."""
        found: dict[str, torch.Tensor] = {}

        def keep(name: str) -> Any:
            def hook(_module: Any, _inputs: Any, output: Any) -> None:
                found[name] = (output[0] if isinstance(output, tuple) else output)[0].detach()

            return hook

        handles = [layer.register_forward_hook(keep(f"layer {n}")) for n, layer in enumerate(self._layers)]
        try:
            with torch.no_grad():
                output = self._model(input_ids[None], output_hidden_states=True, use_cache=False)
        finally:
            for handle in handles:
                handle.remove()
        found["the embedding"] = output.hidden_states[0][0]
        found["the final norm"] = output.hidden_states[-1][0]
        return found

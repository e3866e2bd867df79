"""The generator's interface over Transformers: a real source of real states that starts in a second."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM


class TransformersGenerator:
    """``generate`` like the generator of speculators: rows come as views of one batch tensor, as they do there."""

    def __init__(self, model: str, layer_ids: list[int]) -> None:
        self.layer_ids = layer_ids
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()
        self.calls: list[list[int]] = []

    def generate(self, batch: list[list[int]]) -> list[dict[str, Any]]:
        """States ``[seq, hidden]`` bfloat16 per layer and sequence, each a slice of the whole batch's rows."""
        self.calls.append([len(ids) for ids in batch])
        rows: dict[int, list[torch.Tensor]] = {layer: [] for layer in self.layer_ids}
        for ids in batch:
            handles = [
                self.model.model.layers[layer].register_forward_hook(
                    lambda _m, _i, out, layer=layer: rows[layer].append((out[0] if isinstance(out, tuple) else out)[0])
                )
                for layer in self.layer_ids
            ]
            with torch.no_grad():
                self.model(torch.tensor([ids]))
            for handle in handles:
                handle.remove()
        joined = {
            layer: torch.cat([part.reshape(-1, part.shape[-1]) for part in parts]) for layer, parts in rows.items()
        }
        results, offset = [], 0
        for ids in batch:
            states = [joined[layer][offset : offset + len(ids)] for layer in self.layer_ids]
            results.append({"input_ids": torch.tensor(ids), "hidden_states": states, "loss_mask": None})
            offset += len(ids)
        return results

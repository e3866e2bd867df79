"""Runs in the ML environment: inputs from public bug reports through one real generator; prints figures as JSON."""

import json
import pathlib
import random
import sys
import types

import numpy as np
import torch
from speculators.data_generation import layer_capture, slabs
from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator

from aerie_host.checkpoint.reference_forward import ReferenceModel
from aerie_host.truth.checkpoints import LAYERS, build


class Norm(torch.nn.Module):
    """What vLLM's fused norms read: an update and its residual, which they add."""

    def forward(self, update: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return update + residual


class Layer(torch.nn.Module):
    """What vLLM's decoder layers return: the update, and the residual beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = Norm()

    def forward(self, update: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.norm(update, residual)
        return update + 1, torch.full_like(residual, 2)


class Decoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(4))
        self.norm = Norm()

    def forward(self, update: torch.Tensor) -> torch.Tensor:
        residual = torch.zeros_like(update)
        for layer in self.layers:
            update, residual = layer(update, residual)
        state: torch.Tensor = self.norm(update, residual)
        return state


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = Decoder()


def captured_sums() -> dict[str, bool]:
    """Capture layers 2, 0 and 3 of a decoder whose layer n makes (x + n + 1, 2) of x."""
    names = ("get_pp_group", "get_tp_group")
    groups = {name: getattr(layer_capture, name) for name in names}
    for name in names:
        setattr(layer_capture, name, lambda: types.SimpleNamespace(world_size=1, rank_in_group=0))
    model, states = Model(), torch.arange(6.0).reshape(3, 2)
    decoder = model.model
    before = decoder(states)
    worker = layer_capture.LayerCapture()
    text = types.SimpleNamespace(num_hidden_layers=4)
    worker.vllm_config = types.SimpleNamespace(
        compilation_config=types.SimpleNamespace(mode=None),
        model_config=types.SimpleNamespace(hf_text_config=text),
        scheduler_config=types.SimpleNamespace(max_num_batched_tokens=8),
    )
    worker.model_runner = types.SimpleNamespace(
        model=model, _dummy_run=lambda tokens: decoder(torch.zeros(tokens, 2)), device=torch.device("cpu"),
        input_batch=types.SimpleNamespace(num_reqs=1, req_ids=["a"], num_computed_tokens_cpu=np.zeros(1, int)),
        query_start_loc=types.SimpleNamespace(np=np.array([0, 3])),
    )  # fmt: skip
    home = slabs.Slabs([2, 0, 3], tokens=8, hidden=2, dtype=torch.float32)
    worker._setup_hidden_states_capture([2, 0, 3])
    worker._map_slabs(home)
    worker._reset_capture()
    after = decoder(states)
    gathered = slabs.Gathered(home, {"a": 3})
    gathered.add(worker._get_captured_states())
    for name, group in groups.items():
        setattr(layer_capture, name, group)
    found = gathered.states()["a"]
    return {
        "sums": all(torch.equal(one, states + layer + 1 + 2) for one, layer in zip(found, (2, 0, 3), strict=True)),
        "output unchanged": torch.equal(before, after),
    }


def main() -> None:
    folder, _ = build(sys.argv[2], pathlib.Path(sys.argv[1]))
    generator = VllmHiddenStatesGenerator(str(folder), layer_ids=[0, 2, 4, LAYERS - 1], max_model_len=129)
    draw = random.Random(7)  # noqa: S311 - test data, not a secret
    prompts = [[draw.randrange(3, 512) for _ in range(length)] for length in (42, 46, 43, 45, 37, 48, 42, 45)]
    batch = generator.generate(prompts)
    alone = [generator.generate([prompt])[0] for prompt in prompts]
    cosine = min(
        float(torch.nn.functional.cosine_similarity(a.float(), b.float(), dim=-1).min())
        for one, other in zip(batch, alone, strict=True)
        for a, b in zip(one["hidden_states"], other["hidden_states"], strict=True)
    )
    calls = [[result["input_ids"].tolist() for result in generator.generate(call)] for call in (
        prompts[:1], prompts[:5], prompts[:1],
    )]  # fmt: skip
    window = generator.generate([[draw.randrange(3, 512) for _ in range(64)]])[0]
    reference = ReferenceModel(folder, torch.float32)
    agree = total = 0
    for prompt, result in zip(prompts, batch, strict=True):
        greedy = reference.model(torch.tensor([prompt])).logits[0].argmax(-1)
        last = result["hidden_states"][-1].float()
        agree += int((reference.model.lm_head(reference.model.model.norm(last)).argmax(-1) == greedy).sum())
        total += len(prompt)
    print(
        json.dumps(
            {
                "order": [result["input_ids"].tolist() for result in batch] == prompts,
                "cosine": cosine,
                "calls": calls == [prompts[:1], prompts[:5], prompts[:1]],
                "window": [list(states.shape) for states in window["hidden_states"]],
                "dimensions": sorted({states.dim() for result in batch for states in result["hidden_states"]}),
                "layers": sorted({len(result["hidden_states"]) for result in batch}),
                "storages": max(
                    states.untyped_storage().nbytes() / (states.numel() * 2)
                    for result in batch
                    for states in result["hidden_states"]
                ),
                "greedy": agree / total,
                "capture": captured_sums(),
            }
        )
    )


if __name__ == "__main__":
    main()

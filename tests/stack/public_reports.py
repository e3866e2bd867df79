"""Runs in the ML environment: inputs from public bug reports through one real generator; prints figures as JSON."""

import json
import pathlib
import random
import sys

import torch
from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator

from aerie_host.reference import ReferenceModel
from aerie_host.truth.checkpoints import LAYERS, build


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
            }
        )
    )


if __name__ == "__main__":
    main()

"""Runs in the ML environment: prompts of more tokens than one step takes, in one call and each alone; prints whose rows
came back as JSON.
"""

import json
import pathlib
import random
import sys

import torch
from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator

from aerie_host.truth.checkpoints import build

LENGTH, COUNT = 2000, 6


def main() -> None:
    folder, _ = build("llama", pathlib.Path(sys.argv[1]))
    generator = VllmHiddenStatesGenerator(str(folder), layer_ids=[1, 3, 5], max_model_len=LENGTH + 1)
    draw = random.Random(14)  # noqa: S311 - test data, not a secret
    prompts = [[draw.randrange(3, 512) for _ in range(LENGTH)] for _ in range(COUNT)]
    batch = [result["hidden_states"][0].float() for result in generator.generate(prompts)]
    alone = [generator.generate([prompt])[0]["hidden_states"][0].float() for prompt in prompts]

    def owners(rows: torch.Tensor) -> list[int]:
        """For each prompt, how many of the rows are rows of it, wherever they stand."""
        unit = torch.nn.functional.normalize(rows, dim=-1)
        return [int(((unit @ torch.nn.functional.normalize(one, dim=-1).T).amax(-1) > 0.999).sum()) for one in alone]

    print(json.dumps({"alone": [len(one) for one in alone], "rows": [len(one) for one in batch],
                      "owners": [owners(one) for one in batch]}))  # fmt: skip


if __name__ == "__main__":
    main()

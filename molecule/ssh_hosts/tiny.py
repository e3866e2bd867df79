"""Write a tiny model and conversations: run by an ML environment's Python with the checkout and a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

checkout, folder = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(checkout / "tests" / "ml_environment"))

import models  # noqa: E402  (found only now)
import torch  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

tokenizer = models.fast_tokenizer("chatml")
torch.manual_seed(0)
# The smallest heads that vLLM's attention on CPU has.
shape = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4}
config = LlamaConfig(vocab_size=len(tokenizer), intermediate_size=128, max_position_embeddings=512, **shape)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder / "model")
tokenizer.save_pretrained(folder / "model")
with (folder / "conversations.jsonl").open("w") as stream:
    for number in range(40):
        turns = [
            {"role": "user", "content": f"Where is place {number}?"},
            {"role": "assistant", "content": "In Norway: in the south. " * (1 + number % 3)},
        ]
        stream.write(json.dumps({"id": str(number), "conversations": turns}) + "\n")

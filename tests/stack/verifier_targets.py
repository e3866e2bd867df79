"""Runs in the ML environment: how often training's targets are the target model's own greedy tokens."""

import pathlib
import sys

import torch

from aerie_host.checkpoint.reference_forward import ReferenceModel
from aerie_host.ready.draft_model import _draft
from aerie_host.truth.checkpoints import VOCABULARY, build

folder, _ = build("llama", pathlib.Path(sys.argv[1]))
target = ReferenceModel(folder, torch.float32)
tokens = torch.arange(3, 259)
greedy = target.model(tokens[None]).logits[0].argmax(-1)
last = target.forward(tokens.tolist()).layers[-1]

draft = _draft(folder, torch.arange(VOCABULARY), 1)
seen = []
draft.verifier_lm_head.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
torch.compiler.set_stance("force_eager")
draft(
    hidden_states=torch.zeros(1, len(tokens), 3 * last.shape[-1]),
    input_ids=tokens[None],
    verifier_last_hidden_states=last[None],
    loss_mask=torch.ones(1, len(tokens)),
    ttt_steps=1,
)
print((seen[0][0].argmax(-1) == greedy).float().mean().item())

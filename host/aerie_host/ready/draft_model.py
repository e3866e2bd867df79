"""Train small EAGLE-3 draft models for a few steps on one batch: losses must be finite and fall."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from aerie_host.shared.checks import Checks

# Small, so that one step takes seconds on a CPU; shapes and arithmetic are those of a real draft model.
DRAFT_VOCABULARY = 512
STEP_TOKENS = 256


def _draft(model: Path, tokens: torch.Tensor, layers: int) -> Any:
    """A draft model with the target model's embedding and head; its small vocabulary covers ``tokens``."""
    import torch
    from speculators import SpeculatorsConfig, VerifierConfig
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig
    from transformers import AutoConfig
    from transformers.models.llama.configuration_llama import LlamaConfig

    target = AutoConfig.from_pretrained(model)
    target = getattr(target, "text_config", target)
    layer = LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=target.hidden_size,
        intermediate_size=2 * target.hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=target.num_attention_heads,
        num_key_value_heads=target.num_attention_heads,
        max_position_embeddings=4096,
    )
    layer._attn_implementation = "simple_flex_attention"  # noqa: SLF001 - as the training script of speculators does
    chosen = torch.zeros(target.vocab_size, dtype=torch.bool)
    chosen[tokens.unique()[:DRAFT_VOCABULARY]] = True
    spare = (~chosen).nonzero()[: DRAFT_VOCABULARY - int(chosen.sum()), 0]
    chosen[spare] = True
    kept = chosen.nonzero()[:, 0]
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=len(kept),
        norm_before_residual=False,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=1)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=str(model), architectures=list(target.architectures or [])),
        ),
    )
    return Eagle3DraftModel(config=config, t2d=chosen, d2t=kept - torch.arange(len(kept)))


def _train(model: Path, batch: dict[str, torch.Tensor], layers: int, steps: int) -> dict[str, Any]:
    """Train a draft model of ``layers`` decoder layers for some steps on one batch.

    Returns its losses, and whether they and the gradients are finite.
    """
    import torch

    torch.manual_seed(0)
    began = time.monotonic()
    draft = _draft(model, batch["input_ids"], layers)
    # On the GPU where there is one, as training does. From torch 2.11 on, FlexAttention has no backward on a CPU.
    device = "cuda" if torch.cuda.is_available() else "cpu"
    draft.to(device)
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    optimizer = torch.optim.AdamW([p for p in draft.parameters() if p.requires_grad], lr=1e-4)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        _, loss, _ = draft(**batch, ttt_steps=1)
        loss.backward()
        optimizer.step()
        losses.append(round(float(loss.detach()), 6))
    gradients = [p.grad for p in draft.parameters() if p.requires_grad and p.grad is not None]
    finite = all(map(math.isfinite, losses)) and all(bool(torch.isfinite(g).all()) for g in gradients)
    seconds = round(time.monotonic() - began, 1)
    found = {"layers": layers, "device": device, "losses": losses, "seconds": seconds}
    return {**found, "finite": finite and bool(gradients)}


def train_drafts(
    checks: Checks, model: Path, batch: dict[str, torch.Tensor], layers: list[int], steps: int
) -> list[dict[str, Any]]:
    """Train one draft model for each number of decoder layers; check that losses are finite and fall."""
    import torch._dynamo

    # Compiling needs a compiler and minutes; uncompiled, the same operations run one by one.
    torch._dynamo.config.disable = True  # noqa: SLF001
    small = {name: tensor[:, :STEP_TOKENS] for name, tensor in batch.items() if name != "lengths"}
    small = {name: t.float() if t.is_floating_point() else t for name, t in small.items()}
    ends = batch["lengths"].cumsum(0).clamp(max=small["input_ids"].shape[1])
    lengths = ends.diff(prepend=ends.new_zeros(1))
    small["lengths"] = lengths[lengths > 0]
    drafts = [_train(model, small, number, steps) for number in layers]

    def losses_of(reported: list[dict[str, Any]]) -> str:
        return "; ".join(
            f"{draft['layers']} draft layer{'s' * (draft['layers'] > 1)}: {draft['losses']}" for draft in reported
        )

    remedy = "check the norms of the states (section judge) and the draft model's configuration"
    broken = [draft for draft in drafts if not draft["finite"]]
    checks.require("loss and gradients finite", not broken, losses_of(broken or drafts), "finite", remedy)
    stuck = [draft for draft in drafts if not draft["losses"][-1] < draft["losses"][0]]
    checks.require("loss falls on one batch", not stuck, losses_of(stuck or drafts), "the last below the first", remedy)
    return drafts

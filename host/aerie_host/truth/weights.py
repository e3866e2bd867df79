"""Random weights for a tiny checkpoint: wide enough to show a mistake, and routed so that rounding chooses no expert.

Every decoder layer changes its input by far more than rounding does. Otherwise a layer could be taken for its
neighbour, and no comparison would notice.
"""

from __future__ import annotations

from typing import Any

import torch

SEED = 20_000
SPREAD = 0.08
EMBEDDING_SPREAD = 0.3
# Layers whose result is added to the state, by the last part of their names.
WRITERS = (
    "o_proj", "out_proj", "c_proj", "down_proj", "w2", "wo", "fc2", "dense", "dense_4h_to_h", "output_linear", "fc_out",
)  # fmt: skip
ROUTERS = ("gate", "router", "gate.wg", "router.layer", "classifier")
# How much of its first and of its second expert each token asks for.
FIRST, SECOND = 1.0, 0.75


def draw(model: Any) -> None:
    """Draw all weights of a Transformers model anew, the same each time."""
    torch.manual_seed(SEED)
    embedding = model.get_input_embeddings().weight
    with torch.no_grad():
        for values in model.parameters():
            if values is embedding:
                values.normal_(0.0, EMBEDDING_SPREAD)
            elif values.dim() == 1:
                # Norm weights start out alike in every layer: a mix-up of layers would not show there.
                values.normal_(values.mean().item(), SPREAD)
            else:
                values.normal_(0.0, SPREAD)
        fix_routing(model)


def _owner(name: str) -> str:
    return name.removesuffix(".weight").removesuffix(".bias")


def _routers(model: Any, hidden: int) -> list[tuple[str, torch.Tensor]]:
    return [
        (name, values)
        for name, values in model.named_parameters()
        if values.dim() == 2
        and values.shape[1] == hidden
        and _owner(name).endswith(tuple(f".{end}" for end in ROUTERS))
    ]


def fix_routing(model: Any) -> None:
    """Let every token carry its experts in its embedding, so that rounding cannot choose others.

    Near ties between experts are common among random weights. Two forwards that round differently then compute
    different functions, and no bound tells that from a mistake. Here the first hidden units hold a code that no layer
    writes to and every router reads, in another order in each layer. A token's two experts are in one group.
    """
    embedding = model.get_input_embeddings().weight
    vocabulary, hidden = embedding.shape
    routers = _routers(model, hidden)
    if not routers:
        return
    experts = routers[0][1].shape[0]
    group = experts // (getattr(model.config, "n_group", None) or 1)
    names = {_owner(name) for name, _ in routers}
    with torch.no_grad():
        code = embedding[:, :experts]
        code.zero_()
        for token in range(vocabulary):
            first = token % experts
            second = first - first % group + (first + 1 + token // experts % max(1, group - 1)) % group
            code[token, first], code[token, second] = FIRST, SECOND
        for name, values in model.named_parameters():
            if _owner(name).split(".")[-1].removesuffix("_bias") in WRITERS:
                _leave_code_alone(values, hidden, experts)
            elif _owner(name) in names and values.dim() == 1:
                values.zero_()
        for number, (_, router) in enumerate(routers):
            router.zero_()
            for expert in range(experts):
                router[expert, (expert + number * group) % experts] = 1.0
        for name, values in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("e_score_correction_bias"):
                values.zero_()


def _leave_code_alone(values: torch.Tensor, hidden: int, experts: int) -> None:
    """Zero what a layer adds to the first units: weights ``[..., hidden, in]`` or ``[..., in, hidden]``, or a bias."""
    if values.dim() > 1 and values.shape[-2] == hidden:
        values[..., :experts, :] = 0.0
    elif values.shape[-1] == hidden:
        values[..., :experts] = 0.0

"""The twin of a target model: the same decoder, cut down to what a CPU runs in a minute.

A twin is derived from the target's own ``config.json``. It keeps what decides how states are computed: the classes,
the kinds of layers and their order, windows, norms, multipliers, caps, routing, positions. It cuts what decides only
how much is computed: widths, heads, experts, layers, vocabulary. Quantisation is left out: weights are drawn anew.
"""

from __future__ import annotations

import copy
from typing import Any

from aerie_host.shared.model_config import decoder_values
from aerie_host.shared.refusal import Refusal

LAYERS = 6
HIDDEN = 128
HEADS = 4
HEAD_SIZE = 32
VOCABULARY = 512
EXPERTS = 8
# Shorter than the sequences of the cases, so that a window that is ignored shows.
WINDOW = 64
END_OF_SEQUENCE = 1

# Widths that stand for themselves: the name in a configuration, and the width of the twin.
WIDTHS = {
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "shared_intermediate_size"), 256),
    **dict.fromkeys(("dense_intermediate_size", "intermediate_size_mlp", "dense_ffn_hidden_size"), 256),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 64),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank"), 64),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), HEAD_SIZE),
    "qk_head_dim": 2 * HEAD_SIZE,
}
# Where the target's feed-forward part is this many times as wide as its states, some code counts on it.
FEED_FORWARD = 4
HIDDEN_NAMES = ("hidden_size", "n_embd", "d_model", "word_embed_proj_dim")
LAYER_NAMES = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEAD_NAMES = ("num_attention_heads", "n_head", "n_heads")
KEY_NAMES = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
EXPERT_NAMES = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
CHOSEN_NAMES = ("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk")
WINDOWS = ("sliding_window", "attention_chunk_size", "window_size")
# Lists with one entry for each layer, or with the numbers of layers.
PER_LAYER = (
    "layer_types", "no_rope_layers", "activation_sparsity_pattern", "mlp_layer_types", "layers_block_type",
    "attn_type_list",
)  # fmt: skip
LAYER_NUMBERS = ("mlp_only_layers", "moe_layers", "full_attn_idxs", "attn_layer_indices")
# How often a kind of layer comes back: a twin has at least one whole period.
PERIODS = (
    "sliding_window_pattern", "_sliding_window_pattern", "full_attention_interval", "interleave_moe_layer_step",
    "decoder_sparse_step", "moe_layer_freq", "moe_layer_interval", "attn_layer_period", "expert_layer_period",
)  # fmt: skip


def twin_layers(values: dict[str, Any]) -> int:
    """How many layers show every kind of layer that the target has, and the change from one kind to the next."""
    wanted = LAYERS
    for name in PER_LAYER:
        kinds = values.get(name)
        if isinstance(kinds, list) and kinds:
            wanted = max(wanted, *(min(kinds.index(kind) + 2, len(kinds)) for kind in kinds))
    for name in PERIODS:
        if isinstance(values.get(name), int):
            wanted = max(wanted, values[name] + 1)
    total = next((values[name] for name in LAYER_NAMES if isinstance(values.get(name), int)), wanted)
    return int(min(wanted, total))


def _first(values: dict[str, Any], names: tuple[str, ...]) -> int:
    return next((values[name] for name in names if isinstance(values.get(name), int)), 0)


def _cut_attention(values: dict[str, Any]) -> None:
    heads, hidden = _first(values, HEAD_NAMES), _first(values, HIDDEN_NAMES)
    head: int = values["head_dim"] if isinstance(values.get("head_dim"), int) else hidden // max(1, heads)
    for name in HEAD_NAMES:
        if values.get(name):
            values[name] = HEADS
    for name in KEY_NAMES:
        if values.get(name):
            values[name] = HEADS if values[name] == heads else 1 if values[name] == 1 else 2
    if isinstance(values.get("head_dim"), int):
        # Where heads are wider than their share of the model, the twin's are too. With latent attention it is the part
        # that carries positions.
        plain = head * heads == hidden or bool(values.get("qk_rope_head_dim"))
        values["head_dim"] = HEAD_SIZE if plain else 2 * HEAD_SIZE
    if isinstance(values.get("rotary_dim"), int) and head:
        values["rotary_dim"] = max(2, values["rotary_dim"] * HEAD_SIZE // head)


def _cut_experts(values: dict[str, Any]) -> None:
    for name in EXPERT_NAMES:
        if values.get(name):
            values[name] = min(EXPERTS, values[name])
    for name in CHOSEN_NAMES:
        if values.get(name):
            values[name] = min(2, values[name])
    if (values.get("n_group") or 1) > 1:
        values["n_group"], values["topk_group"] = 2, 1
    if isinstance(values.get("first_k_dense_replace"), int):
        values["first_k_dense_replace"] = min(1, values["first_k_dense_replace"])


def _cut_layers(values: dict[str, Any]) -> None:
    count = twin_layers(values)
    for name in LAYER_NAMES:
        if isinstance(values.get(name), int):
            values[name] = count
    for name in PER_LAYER:
        if isinstance(values.get(name), list):
            values[name] = values[name][:count]
    for name in LAYER_NUMBERS:
        if isinstance(values.get(name), list):
            values[name] = [number for number in values[name] if number < count]


def _cut_widths(values: dict[str, Any]) -> None:
    hidden = _first(values, HIDDEN_NAMES)
    for name, width in WIDTHS.items():
        if isinstance(values.get(name), int) and values[name]:
            values[name] = FEED_FORWARD * HIDDEN if values[name] == FEED_FORWARD * hidden and width == 256 else width
    for name in HIDDEN_NAMES:
        if values.get(name):
            values[name] = HIDDEN
    for name in WINDOWS:
        if values.get(name):
            values[name] = min(WINDOW, values[name])


def _cut_positions(values: dict[str, Any]) -> None:
    scaling = values.get("rope_scaling")
    if not isinstance(scaling, dict):
        return
    head = values.get("qk_rope_head_dim") or values.get("head_dim") or HEAD_SIZE
    half = int(head * (values.get("partial_rotary_factor") or 1.0)) // 2
    for name in ("short_factor", "long_factor"):
        if isinstance(scaling.get(name), list):
            scaling[name] = (scaling[name] * half)[:half]
    if isinstance(scaling.get("mrope_section"), list):
        parts = len(scaling["mrope_section"])
        scaling["mrope_section"] = [half - (half // parts) * (parts - 1), *[half // parts] * (parts - 1)]


def _cut_vocabulary(values: dict[str, Any]) -> None:
    values["vocab_size"] = VOCABULARY
    for name in list(values):
        if name.endswith("_token_id") and isinstance(values[name], (int, list)):
            values[name] = END_OF_SEQUENCE if name == "eos_token_id" else 2
    if values.get("pad_token_id") is not None:
        values["pad_token_id"] = 0


def twin_values(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a decoder's configuration cut down; see the module for what is kept."""
    values = copy.deepcopy(values)
    for name in ("quantization_config", "auto_map", "_name_or_path", "transformers_version"):
        values.pop(name, None)
    _cut_attention(values)
    _cut_experts(values)
    _cut_layers(values)
    _cut_widths(values)
    _cut_positions(values)
    _cut_vocabulary(values)
    values["torch_dtype"] = values["dtype"] = "bfloat16"
    return values


def _configuration_class(values: dict[str, Any]) -> Any:
    """The class that Transformers has for a decoder: by its model type, else by the name of its architecture.

    Raises:
        Refusal: it has none.

    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind = str(values.get("model_type", ""))
    if kind in CONFIG_MAPPING:
        return CONFIG_MAPPING[kind]
    architectures = [str(name) for name in values.get("architectures") or []]
    for known, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        if name in architectures:
            return CONFIG_MAPPING[known]
    found = f"model type {kind or 'none'}, architectures {', '.join(architectures) or 'none'}"
    wanted = "one that the environment's Transformers knows without code from the checkpoint"
    remedy = "prove a related architecture (truth_architectures) and compare samples (hidden_states_reference_samples)"
    raise Refusal("twin of the target model", found, wanted, remedy)


def twin_config(config: dict[str, Any]) -> Any:
    """The configuration of the twin, of the class that Transformers has for the target's decoder.

    Args:
        config: what stands in the target's ``config.json``.

    Raises:
        Refusal: Transformers has no such class, or the class does not take the values.

    """
    values = decoder_values(config)
    kind = _configuration_class(values)
    try:
        # Through the class first: what a file leaves out has a default there.
        return kind.from_dict(twin_values({**kind.from_dict(dict(values)).to_dict(), **values}))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        wanted = "values that the class takes"
        raise Refusal("twin of the target model", f"{kind.__name__}: {error}", wanted) from error

"""What a checkpoint's ``config.json`` says about its decoder, read without importing anything."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from .durable import read_json
from .refusal import UsageRefusal

if TYPE_CHECKING:
    from pathlib import Path

# Wrappers of several modalities keep their language model's configuration under one of these names.
NESTED = ("text_config", "llm_config", "language_config")
KEYS = ("num_hidden_layers", "hidden_size", "vocab_size")
CONVENTION = "output of decoder layer id (0-based), update plus residual, before the final norm"


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """The numbers that an extraction needs before any weight is read."""

    num_layers: int
    hidden_size: int
    vocab_size: int


def decoder_values(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a configuration that describes the decoder: the whole, or what a wrapper keeps under a name."""
    for name in NESTED:
        if "num_hidden_layers" not in config and isinstance(config.get(name), dict):
            config = config[name]
    return config


def decoder_config(model: Path) -> dict[str, Any] | None:
    """The part of ``config.json`` that describes the decoder; None when the file cannot be read."""
    config = read_json(model / "config.json")
    return None if config is None else decoder_values(config)


def read_config(model: Path) -> dict[str, Any]:
    """What stands in ``config.json``; ``UsageRefusal`` when the folder is no checkpoint."""
    config, file = read_json(model / "config.json"), str(model / "config.json")
    if config is None:
        found = f"{model} is no model folder: it has no config.json that can be read"
        raise UsageRefusal("model", found, "the folder of a checkpoint", "correct hidden_states_model_path", file)
    return config


def _number(config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def hidden_size_of(model: Path) -> int:
    """The decoder's hidden size; 0 when ``config.json`` is not there or does not say it."""
    return _number(decoder_config(model) or {}, "hidden_size")


def read_facts(model: Path) -> ModelFacts:
    """The decoder's numbers; ``UsageRefusal`` when the folder is no checkpoint."""
    config = decoder_values(read_config(model))
    file = str(model / "config.json")
    missing = [key for key in KEYS if not _number(config, key)]
    if missing:
        found = f"{file} does not say {', '.join(missing)}"
        raise UsageRefusal("model", found, f"positive numbers for {', '.join(KEYS)}", "", file)
    return ModelFacts(*(_number(config, key) for key in KEYS))


def choose_layers(wanted: list[int], facts: ModelFacts) -> list[int]:
    """The layers to extract: those that are wanted, or the choice of speculators 0.3.0 for an empty list.

    ``UsageRefusal`` for layers that do not exist, and for repeats: two equal tensors in one file help no training.
    """
    count = facts.num_layers
    layers = wanted or [2, count // 2, count - 3, count - 1]
    outside = [layer for layer in layers if not 0 <= layer < count]
    if outside:
        found = f"layers {outside} do not exist"
        raise UsageRefusal("layers", found, f"layers from 0 to {count - 1}", "correct hidden_states_layer_ids")
    if len(set(layers)) != len(layers):
        origin = "" if wanted else f", the default for a model with {count} layers,"
        found = f"{layers}{origin} names a layer twice"
        raise UsageRefusal("layers", found, "distinct layers", "name distinct layers in hidden_states_layer_ids")
    return layers

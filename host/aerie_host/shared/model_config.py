"""What a checkpoint's ``config.json`` says about its decoder, read without importing anything."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from aerie_host.report.outcome import UsageError

from .durable import read_json

if TYPE_CHECKING:
    from pathlib import Path

# Wrappers of several modalities keep their language model's configuration under one of these names.
NESTED = ("text_config", "llm_config", "language_config")
CONVENTION = "output of decoder layer id (0-based), update plus residual, before the final norm"


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """The numbers that an extraction needs before any weight is read."""

    num_layers: int
    hidden_size: int
    vocab_size: int


def read_facts(model: Path) -> ModelFacts:
    """The decoder's numbers; ``UsageError`` when the folder is no checkpoint."""
    config = read_json(model / "config.json")
    if config is None:
        raise UsageError(f"{model} is no model folder: it has no config.json that can be read")
    for name in NESTED:
        if "num_hidden_layers" not in config and isinstance(config.get(name), dict):
            config = config[name]
    found = [config.get(name) for name in ("num_hidden_layers", "hidden_size", "vocab_size")]
    numbers = [number for number in found if isinstance(number, int) and number > 0]
    if len(numbers) != len(found):
        raise UsageError(f"{model}/config.json does not say num_hidden_layers, hidden_size and vocab_size")
    return ModelFacts(*numbers)


def choose_layers(asked: list[int], facts: ModelFacts) -> list[int]:
    """The layers to extract: those asked, or the choice of speculators 0.3.0 for an empty list.

    Refuses layers that do not exist and repeats: two equal tensors in one file help no training.
    """
    count = facts.num_layers
    layers = asked or [2, count // 2, count - 3, count - 1]
    outside = [layer for layer in layers if not 0 <= layer < count]
    if outside:
        raise UsageError(f"layers {outside} do not exist: the model has 0 to {count - 1}")
    if len(set(layers)) != len(layers):
        origin = "the layers asked" if asked else f"the default layers of a model with {count} layers"
        raise UsageError(f"{origin}, {layers}, name one twice: give distinct layers")
    return layers

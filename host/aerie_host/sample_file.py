"""What one sample's file must be: every property has a name, every flaw says file, layer and row."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from typing import TYPE_CHECKING, Any

import torch

from aerie_host.files import sha256_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEYS = {"input_ids", "hidden_states", "loss_mask"}

# Names of the checks, in the order of the report.
DIGEST = "sha256 as in the manifest"
READABLE = "readable with weights_only"
FORM = "keys and types"
LENGTHS = "lengths agree"
MASK = "loss mask"
LAYERS = "number of layers"
SHAPES = "shapes"
DTYPES = "bfloat16"
FINITE = "finite"
VARIED = "not constant"
DISTINCT = "layers differ from each other"
OWN_ROWS = "holds only its own rows"
PROPERTIES = (DIGEST, READABLE, FORM, LENGTHS, MASK, LAYERS, SHAPES, DTYPES, FINITE, VARIED, DISTINCT, OWN_ROWS)


@dataclasses.dataclass(frozen=True)
class Expected:
    """What the manifest says of one file, and the extraction of all."""

    file: str
    length: int
    trainable: int
    sha256: str
    layers: tuple[int, ...]
    hidden_size: int


@dataclasses.dataclass(frozen=True)
class Flaw:
    """A property that does not hold, and where."""

    prop: str
    text: str


def load(path: Path) -> dict[str, Any]:
    """The sample as training loads it; ``ValueError`` in words when that fails."""
    try:
        data = torch.load(path, weights_only=True, map_location="cpu")
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, KeyError, ValueError, AttributeError) as error:
        raise ValueError(f"cannot be loaded: {str(error).splitlines()[0][:160]}") from error
    if not isinstance(data, dict):
        raise ValueError(f"holds a {type(data).__name__}, wanted a dict")
    return data


def _form(data: dict[str, Any]) -> list[str]:
    if set(data) != KEYS:
        return [f"keys {sorted(map(str, data))}, wanted {sorted(KEYS)}"]
    problems = []
    for name in ("input_ids", "loss_mask"):
        value = data[name]
        if not isinstance(value, torch.Tensor) or value.dim() != 1 or value.dtype != torch.long:
            what = f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            problems.append(f"{name} is {what}, wanted int64 [seq]")
    states = data["hidden_states"]
    if not isinstance(states, list) or not all(isinstance(one, torch.Tensor) for one in states):
        problems.append(f"hidden_states is {type(states).__name__}, wanted a list of tensors")
    return problems


def _lengths(data: dict[str, Any], expected: Expected) -> list[str]:
    seq, masked = len(data["input_ids"]), len(data["loss_mask"])
    problems = []
    if seq == 0:
        problems.append("has no token")
    if seq != expected.length:
        problems.append(f"input_ids has {seq} tokens, the manifest says {expected.length}")
    if masked != seq:
        problems.append(f"loss_mask has {masked} values for {seq} tokens")
    return problems


def _mask(data: dict[str, Any], expected: Expected) -> list[str]:
    mask = data["loss_mask"]
    if bool(((mask != 0) & (mask != 1)).any()):
        return ["loss_mask holds other values than 0 and 1"]
    count = int(mask.sum())
    if count == 0:
        return ["loss_mask has no trainable token"]
    return [] if count == expected.trainable else [f"{count} trainable tokens, the manifest says {expected.trainable}"]


def _first_row(bad: torch.Tensor) -> int:
    return int(bad.nonzero()[0, 0])


def _layer(states: torch.Tensor, layer: int, seq: int, hidden_size: int) -> list[Flaw]:
    """Flaws of one layer's tensor ``[seq, hidden]``."""
    where = f"layer {layer}"
    if list(states.shape) != [seq, hidden_size]:
        return [Flaw(SHAPES, f"{where}: shape {list(states.shape)}, wanted [{seq}, {hidden_size}]")]
    flaws = []
    if states.dtype != torch.bfloat16:
        flaws.append(Flaw(DTYPES, f"{where}: {states.dtype}, wanted torch.bfloat16"))
    if states.untyped_storage().nbytes() > states.numel() * states.element_size():
        held = states.untyped_storage().nbytes() // (hidden_size * states.element_size())
        flaws.append(Flaw(OWN_ROWS, f"{where}: stores {held} rows for {seq} tokens"))
    if seq == 0:
        return flaws
    bad = ~torch.isfinite(states).all(dim=1)
    if bool(bad.any()):
        return [*flaws, Flaw(FINITE, f"{where}, row {_first_row(bad)}: not finite ({int(bad.sum())} rows)")]
    constant = (states == states[:, :1]).all(dim=1)
    if hidden_size > 1 and bool(constant.any()):
        text = f"{where}, row {_first_row(constant)}: one value throughout ({int(constant.sum())} rows)"
        flaws.append(Flaw(VARIED, text))
    elif seq > 1 and bool((states == states[:1]).all()):
        flaws.append(Flaw(VARIED, f"{where}: all {seq} rows are equal"))
    return flaws


def _distinct(states: list[torch.Tensor], layers: tuple[int, ...]) -> list[Flaw]:
    """Layers that are equal in more than a tenth of the rows.

    Single equal rows happen: where a row holds a few huge values, the next layer's update may round away in bfloat16.
    """
    flaws = []
    for first, second in itertools.combinations(range(len(states)), 2):
        if states[first].shape != states[second].shape or not len(states[first]):
            continue
        same = (states[first] == states[second]).all(dim=1)
        if int(same.sum()) * 10 > len(same):
            where = f"layers {layers[first]} and {layers[second]}"
            flaws.append(Flaw(DISTINCT, f"{where}: equal in {int(same.sum())} rows from row {_first_row(same)} on"))
    return flaws


def flaws_of(data: dict[str, Any], expected: Expected) -> list[Flaw]:
    """Every flaw of a loaded sample; none means that it keeps the data contract."""
    form = _form(data)
    if form:
        return [Flaw(FORM, text) for text in form]
    flaws = [Flaw(LENGTHS, text) for text in _lengths(data, expected)]
    if not flaws:
        flaws += [Flaw(MASK, text) for text in _mask(data, expected)]
    states: list[torch.Tensor] = data["hidden_states"]
    if len(states) != len(expected.layers):
        flaws.append(Flaw(LAYERS, f"{len(states)} layers, {len(expected.layers)} were asked: {list(expected.layers)}"))
        return flaws
    seq = len(data["input_ids"])
    for layer, tensor in zip(expected.layers, states, strict=True):
        flaws += _layer(tensor, layer, seq, expected.hidden_size)
    return flaws + _distinct(states, expected.layers)


def inspect(folder: Path, expected: Expected, seen: Callable[[list[torch.Tensor]], None] | None = None) -> list[Flaw]:
    """Every flaw of one file, each text beginning with its name; ``seen`` gets the states of a file without any."""
    path = folder / expected.file
    if not path.is_file():
        return [Flaw(READABLE, f"{expected.file} is missing")]
    flaws = []
    if sha256_file(path) != expected.sha256:
        flaws.append(Flaw(DIGEST, "differs from the manifest"))
    try:
        data = load(path)
        flaws += flaws_of(data, expected)
        if seen is not None and not flaws:
            seen(data["hidden_states"])
    except ValueError as error:
        flaws.append(Flaw(READABLE, str(error)))
    return [Flaw(flaw.prop, f"{expected.file}: {flaw.text}") for flaw in flaws]

"""Examine one sample: its keys and types, its tokens and loss mask, its size, and its hidden states."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch

from aerie_host.folder.sample_format import HIDDEN_STATES, INPUT_IDS, LOSS_MASK, SAMPLE_KEYS, TOKEN_KEYS
from aerie_host.judge.flaws import FORM, IDS, LAYERS, LENGTHS, MASK, OWN_ROWS, TOKENS, Examined, positions
from aerie_host.judge.states import examine_states
from aerie_host.shared.digests import sha256_json
from aerie_host.shared.sample_size import overhead

if TYPE_CHECKING:
    from aerie_host.folder.record import SampleRecord
    from aerie_host.judge.expectation import Expectation


def examine(data: dict[str, Any], size: int, record: SampleRecord | None, expectation: Expectation) -> Examined:
    """Find every flaw of a loaded sample whose file has ``size`` bytes."""
    found = Examined()
    found.add(FORM, *_form(data))
    if found.flaws:
        return found
    ids, mask, states = data[INPUT_IDS], data[LOSS_MASK], data[HIDDEN_STATES]
    found.length = len(ids)
    found.trainable = int((mask == 1).sum())
    found.tokens = hashlib.sha256(ids.contiguous().numpy()).digest()[:16]
    found.add(LENGTHS, *_lengths(ids, mask, record))
    found.add(IDS, *_ids(ids, expectation.vocabulary))
    if not found.flaws:
        found.add(MASK, *_mask(mask, record))
    if not found.flaws and record is not None and record.tokens_sha256 != _tokens_digest(ids, mask):
        found.add(TOKENS, "holds the tokens of another sample")
    if len(states) != expectation.count:
        found.add(LAYERS, f"{len(states)} layers, {expectation.count} {expectation.source}")
        return found
    examine_states(states, len(ids), expectation, found)
    _size(data, size, found)
    return found


def _tokens_digest(ids: torch.Tensor, mask: torch.Tensor) -> str:
    return sha256_json([ids.tolist(), mask.tolist()])


def _what(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {list(value.shape)}"
    return type(value).__name__


def _plain(value: torch.Tensor) -> bool:
    """Whether every element has its own place in memory: not sparse, not expanded, not without data."""
    if value.layout != torch.strided or value.device.type != "cpu":
        return False
    return bool(value.untyped_storage().nbytes() >= value.numel() * value.element_size())


def _form(data: dict[str, Any]) -> list[str]:
    missing, extra = sorted(set(SAMPLE_KEYS) - set(data)), sorted(map(str, set(data) - set(SAMPLE_KEYS)))
    problems = [f"the key {name} is missing" for name in missing]
    problems += [f"the key {name} is unexpected, wanted {', '.join(sorted(SAMPLE_KEYS))}" for name in extra]
    if problems:
        return problems
    for name in TOKEN_KEYS:
        value = data[name]
        if not isinstance(value, torch.Tensor) or value.dim() != 1 or value.dtype != torch.long:
            problems.append(f"{name} is {_what(value)}, wanted int64 [seq]")
        elif not _plain(value):
            problems.append(f"{name} is sparse or expanded, wanted a plain tensor")
    states = data[HIDDEN_STATES]
    if not isinstance(states, list):
        return [*problems, f"hidden_states is {_what(states)}, wanted a list of tensors"]
    for number, value in enumerate(states):
        if not isinstance(value, torch.Tensor):
            problems.append(f"hidden_states[{number}] is {_what(value)}, wanted a tensor")
        elif not _plain(value):
            problems.append(f"hidden_states[{number}] is sparse or expanded, wanted a plain tensor")
    return problems


def _lengths(ids: torch.Tensor, mask: torch.Tensor, record: SampleRecord | None) -> list[str]:
    seq = len(ids)
    problems = [] if seq else ["has no token"]
    if record is not None and seq != record.length:
        problems.append(f"input_ids has {seq} tokens, the manifest says {record.length}")
    if len(mask) != seq:
        problems.append(f"loss_mask has {len(mask)} values for {seq} tokens")
    return problems


def _ids(ids: torch.Tensor, vocabulary: int) -> list[str]:
    negative = ids < 0
    if bool(negative.any()):
        return [f"{positions(negative)}: negative token id {int(ids[negative][0])}"]
    over = ids >= vocabulary
    if vocabulary and bool(over.any()):
        return [f"{positions(over)}: token id {int(ids[over][0])}, the vocabulary has {vocabulary}"]
    return []


def _mask(mask: torch.Tensor, record: SampleRecord | None) -> list[str]:
    other = (mask != 0) & (mask != 1)
    if bool(other.any()):
        return [f"{positions(other)}: loss_mask holds {int(mask[other][0])}, wanted 0 or 1"]
    count = int(mask.sum())
    if count == 0:
        return ["loss_mask has no trainable token"]
    if record is None or count == record.trainable:
        return []
    return [f"{count} trainable tokens, the manifest says {record.trainable}"]


def _size(data: dict[str, Any], size: int, found: Examined) -> None:
    """A file much larger than its tensors holds states of other samples."""
    tensors = [data[INPUT_IDS], data[LOSS_MASK], *data[HIDDEN_STATES]]
    content = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    allowed = content + overhead(len(tensors))
    if size > allowed and not any(flaw.prop == OWN_ROWS for flaw in found.flaws):
        found.add(OWN_ROWS, f"has {size} bytes, its {len(tensors)} tensors {content}")
        found.layers = []

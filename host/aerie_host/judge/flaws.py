"""What one sample must be: every property has a name, every flaw says layer and row.

The tests are chosen for speed: one norm, one maximum and one minimum per row, all in the files' own 16 bits. Only rows
in which these look odd are looked at again, number by number.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from typing import TYPE_CHECKING, Any

import torch

from aerie_host.report.summaries import LayerSum
from aerie_host.shared.digests import sha256_json
from aerie_host.shared.sample_size import overhead

if TYPE_CHECKING:
    from aerie_host.folder.expectation import Contract, Expected

KEYS = {"input_ids", "hidden_states", "loss_mask"}

# Names of the checks, in the order of the report.
DIGEST = "sha256 as in the manifest"
READABLE = "readable with weights_only"
FORM = "keys and types"
LENGTHS = "lengths agree"
IDS = "token ids"
MASK = "loss mask"
TOKENS = "tokens as in the manifest"
LAYERS = "number of layers"
SHAPES = "shapes"
DTYPES = "bfloat16"
FINITE = "finite"
VARIED = "not constant"
DISTINCT = "layers differ from each other"
OWN_ROWS = "holds only its own rows"
PROPERTIES = (
    *(DIGEST, READABLE, FORM, LENGTHS, IDS, MASK, TOKENS, LAYERS, SHAPES, DTYPES),
    *(FINITE, VARIED, DISTINCT, OWN_ROWS),
)
# Properties that only a manifest can tell.
OF_MANIFEST = (DIGEST, TOKENS)

SHOWN_ROWS = 5
# Layers that share more rows than one in ten are one layer saved twice. Single equal rows happen: where a row holds a
# few huge values, the next layer's update may round away in bfloat16.
SHARED_ROWS = 10


@dataclasses.dataclass(frozen=True)
class Flaw:
    """A property that does not hold, and where."""

    prop: str
    text: str


@dataclasses.dataclass
class Examined:
    """What one file turned out to be.

    Attributes:
        flaws: what is wrong with it.
        length: tokens; 0 where they cannot be told.
        trainable: tokens with a loss.
        tokens: digest of the token ids; empty where there are none.
        layers: sums per layer, of a file without flaws.
        not_finite: layer, row and value of numbers that are none, the first few.
    """

    flaws: list[Flaw] = dataclasses.field(default_factory=list)
    length: int = 0
    trainable: int = 0
    tokens: bytes = b""
    layers: list[LayerSum] = dataclasses.field(default_factory=list)
    not_finite: list[tuple[str, int, str]] = dataclasses.field(default_factory=list)

    def add(self, prop: str, *texts: str) -> None:
        """Take in flaws of one property."""
        self.flaws += [Flaw(prop, text) for text in texts]


def examine(data: dict[str, Any], size: int, expected: Expected, contract: Contract) -> Examined:
    """Every flaw of a loaded sample whose file has ``size`` bytes; none means that it keeps the data contract."""
    found = Examined()
    found.add(FORM, *_form(data))
    if found.flaws:
        return found
    ids, mask, states = data["input_ids"], data["loss_mask"], data["hidden_states"]
    found.length = len(ids)
    found.trainable = int((mask == 1).sum())
    found.tokens = hashlib.sha256(ids.contiguous().numpy()).digest()[:16]
    found.add(LENGTHS, *_lengths(ids, mask, expected))
    found.add(IDS, *_ids(ids, contract.vocabulary))
    if not found.flaws:
        found.add(MASK, *_mask(mask, expected))
    if not found.flaws and expected.tokens_sha256 and expected.tokens_sha256 != _tokens_digest(ids, mask):
        found.add(TOKENS, "holds the tokens of another sample")
    if len(states) != contract.count:
        found.add(LAYERS, f"{len(states)} layers, {contract.count} {contract.source}")
        return found
    _layers(states, len(ids), contract, found)
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
    missing, extra = sorted(KEYS - set(data)), sorted(map(str, set(data) - KEYS))
    problems = [f"the key {name} is missing" for name in missing]
    problems += [f"the key {name} is too much, wanted {', '.join(sorted(KEYS))}" for name in extra]
    if problems:
        return problems
    for name in ("input_ids", "loss_mask"):
        value = data[name]
        if not isinstance(value, torch.Tensor) or value.dim() != 1 or value.dtype != torch.long:
            problems.append(f"{name} is {_what(value)}, wanted int64 [seq]")
        elif not _plain(value):
            problems.append(f"{name} is sparse or expanded, wanted a plain tensor")
    states = data["hidden_states"]
    if not isinstance(states, list):
        return [*problems, f"hidden_states is {_what(states)}, wanted a list of tensors"]
    for number, value in enumerate(states):
        if not isinstance(value, torch.Tensor):
            problems.append(f"hidden_states[{number}] is {_what(value)}, wanted a tensor")
        elif not _plain(value):
            problems.append(f"hidden_states[{number}] is sparse or expanded, wanted a plain tensor")
    return problems


def _lengths(ids: torch.Tensor, mask: torch.Tensor, expected: Expected) -> list[str]:
    seq = len(ids)
    problems = [] if seq else ["has no token"]
    if expected.length is not None and seq != expected.length:
        problems.append(f"input_ids has {seq} tokens, the manifest says {expected.length}")
    if len(mask) != seq:
        problems.append(f"loss_mask has {len(mask)} values for {seq} tokens")
    return problems


def _ids(ids: torch.Tensor, vocabulary: int) -> list[str]:
    negative = ids < 0
    if bool(negative.any()):
        return [f"{rows(negative)}: negative token id {int(ids[negative][0])}"]
    over = ids >= vocabulary
    if vocabulary and bool(over.any()):
        return [f"{rows(over)}: token id {int(ids[over][0])}, the vocabulary has {vocabulary}"]
    return []


def _mask(mask: torch.Tensor, expected: Expected) -> list[str]:
    other = (mask != 0) & (mask != 1)
    if bool(other.any()):
        return [f"{rows(other)}: loss_mask holds {int(mask[other][0])}, wanted 0 or 1"]
    count = int(mask.sum())
    if count == 0:
        return ["loss_mask has no trainable token"]
    if expected.trainable is None or count == expected.trainable:
        return []
    return [f"{count} trainable tokens, the manifest says {expected.trainable}"]


def rows(marked: torch.Tensor) -> str:
    """The marked rows in words, the first five of them."""
    numbers = marked.nonzero()[:, 0].tolist()
    more = len(numbers) - SHOWN_ROWS
    text = ", ".join(map(str, numbers[:SHOWN_ROWS])) + (f" and {more} more" if more > 0 else "")
    return f"row {text}" if len(numbers) == 1 else f"rows {text}"


def _layers(states: list[torch.Tensor], seq: int, contract: Contract, found: Examined) -> None:
    """Flaws and sums of all layers."""
    marks: list[torch.Tensor | None] = []
    sums = []
    for number, tensor in enumerate(states):
        mark = _layer(tensor, contract.where(number), (seq, contract.hidden_size), found)
        marks.append(mark)
        if mark is not None:
            sums.append(LayerSum.of(mark[2].view(torch.bfloat16)))
    for first, second in itertools.combinations(range(len(states)), 2):
        one, two = marks[first], marks[second]
        if one is None or two is None or not seq:
            continue
        # Equal rows have equal marks; only where many have are the rows themselves compared.
        alike = (one == two).all(dim=0)
        if int(alike.sum()) * SHARED_ROWS > seq:
            alike[alike.clone()] = (states[first][alike] == states[second][alike]).all(dim=1)
        if int(alike.sum()) * SHARED_ROWS > seq:
            where = contract.where(first, second)
            found.add(DISTINCT, f"{where}: equal in {int(alike.sum())} of {seq} rows, {rows(alike)}")
    found.layers = [] if found.flaws else sums


def _layer(states: torch.Tensor, where: str, wanted: tuple[int, int], found: Examined) -> torch.Tensor | None:
    """Flaws of one layer's tensor ``[seq, hidden]``.

    Returns the marks of its rows, int16 ``[3, seq]``: greatest and least bits, and the bits of the norm. None where
    the tensor is not fit to be compared with another layer's.
    """
    seq, hidden_size = wanted
    if tuple(states.shape) != wanted:
        found.add(SHAPES, f"{where}: shape {list(states.shape)}, wanted {list(wanted)}")
        return None
    if states.dtype != torch.bfloat16:
        found.add(DTYPES, f"{where}: {states.dtype}, wanted torch.bfloat16")
        return None
    held = states.untyped_storage().nbytes()
    if held > states.numel() * states.element_size():
        stored = held // (hidden_size * states.element_size())
        found.add(OWN_ROWS, f"{where}: stores {stored} rows for {seq} tokens")
    if seq == 0:
        return None
    # A number that is none makes its row's norm none: a pass over the bits is four times faster than isfinite().
    norms = torch.linalg.vector_norm(states, dim=1)
    odd = ~torch.isfinite(norms)
    if bool(odd.any()):
        if _not_finite(states, odd, where, found):
            return None
        # Finite numbers whose squares are not.
        norms[odd] = torch.linalg.vector_norm(states[odd].double(), dim=1).clamp_max(3e38).bfloat16()
    bits = states.view(torch.int16)
    high, low = bits.amax(dim=1), bits.amin(dim=1)
    constant = (high == low) | (norms == 0)
    if hidden_size > 1 and bool(constant.any()):
        constant[constant.clone()] = (states[constant] == states[constant][:, :1]).all(dim=1)
        zero = constant & (norms == 0)
        found.add(VARIED, *([f"{where}, {rows(zero)}: all zeros"] if bool(zero.any()) else []))
        other = constant & ~zero
        found.add(VARIED, *([f"{where}, {rows(other)}: one value throughout"] if bool(other.any()) else []))
        if bool(constant.any()):
            return None
    alike = bool((high == high[0]).all()) and bool((low == low[0]).all())
    if seq > 1 and alike and bool((states == states[:1]).all()):
        found.add(VARIED, f"{where}: all {seq} rows are equal")
    return torch.stack((high, low, norms.view(torch.int16)))


def _not_finite(states: torch.Tensor, odd: torch.Tensor, where: str, found: Examined) -> bool:
    """Look for NaN and infinity in the odd rows; whether there are any."""
    suspects = states[odd]
    is_nan, is_infinite = torch.zeros_like(odd), torch.zeros_like(odd)
    is_nan[odd] = torch.isnan(suspects).any(dim=1)
    is_infinite[odd] = torch.isinf(suspects).any(dim=1)
    for name, marked in (("NaN", is_nan), ("infinity", is_infinite & ~is_nan)):
        if bool(marked.any()):
            found.add(FINITE, f"{where}, {rows(marked)}: {name}")
            found.not_finite += [(where, row, name) for row in marked.nonzero()[:SHOWN_ROWS, 0].tolist()]
    return bool(is_nan.any() or is_infinite.any())


def _size(data: dict[str, Any], size: int, found: Examined) -> None:
    """A file much larger than its tensors holds rows that are not its own."""
    tensors = [data["input_ids"], data["loss_mask"], *data["hidden_states"]]
    content = sum(one.numel() * one.element_size() for one in tensors)
    allowed = content + overhead(len(tensors))
    if size > allowed and not any(flaw.prop == OWN_ROWS for flaw in found.flaws):
        found.add(OWN_ROWS, f"has {size} bytes, its {len(tensors)} tensors {content}")
        found.layers = []

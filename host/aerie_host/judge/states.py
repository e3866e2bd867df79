"""Examine the hidden states of one sample.

The tests are chosen for speed: one norm, one maximum and one minimum for each token, all in the files' own 16 bits.
Only tokens whose numbers look wrong are examined again, number by number.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

from aerie_host.judge.flaws import (
    DISTINCT,
    DTYPES,
    FINITE,
    OWN_ROWS,
    SHAPES,
    SHOWN_POSITIONS,
    VARIED,
    Examined,
    positions,
)
from aerie_host.report.summaries import LayerSum

if TYPE_CHECKING:
    from aerie_host.judge.expectation import Expectation

# Layers whose states are equal for more than one token in ten are one layer saved twice. A few equal ones are normal:
# where a state has a few huge values, the next layer's update may round away in bfloat16.
SHARED_POSITIONS = 10


def examine_states(states: list[torch.Tensor], seq: int, expectation: Expectation, found: Examined) -> None:
    """Find the flaws of all layers, ``states``: a tensor ``[seq, hidden]`` for each; sum up the norms of sound ones."""
    marks: list[torch.Tensor | None] = []
    sums = []
    for number, tensor in enumerate(states):
        mark = _layer(tensor, expectation.where(number), (seq, expectation.hidden_size), found)
        marks.append(mark)
        if mark is not None:
            sums.append(LayerSum.of(mark[2].view(torch.bfloat16)))
    for first, second in itertools.combinations(range(len(states)), 2):
        first_marks, second_marks = marks[first], marks[second]
        if first_marks is None or second_marks is None or not seq:
            continue
        # Equal states have equal marks. The states themselves are compared only where many marks are equal.
        alike = (first_marks == second_marks).all(dim=0)
        if int(alike.sum()) * SHARED_POSITIONS > seq:
            alike[alike.clone()] = (states[first][alike] == states[second][alike]).all(dim=1)
        if int(alike.sum()) * SHARED_POSITIONS > seq:
            where = expectation.where(first, second)
            found.add(DISTINCT, f"{where}: equal in {int(alike.sum())} of {seq} tokens, at {positions(alike)}")
    found.layers = [] if found.flaws else sums


def _layer(states: torch.Tensor, where: str, wanted: tuple[int, int], found: Examined) -> torch.Tensor | None:
    """Find the flaws of one layer's tensor ``[seq, hidden]``.

    Returns the marks of its states, int16 ``[3, seq]``: the greatest and the least of a state's numbers, and its norm,
    each as the bits of a bfloat16. None where the tensor cannot be compared with another layer's.
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
        found.add(OWN_ROWS, f"{where}: stores {stored} states for {seq} tokens")
    if seq == 0:
        return None
    # NaN or infinity in a state makes its norm NaN or infinity; this is four times faster than isfinite().
    norms = torch.linalg.vector_norm(states, dim=1)
    odd = ~torch.isfinite(norms)
    if bool(odd.any()):
        if _not_finite(states, odd, where, found):
            return None
        # The numbers are finite, their squares overflow.
        norms[odd] = torch.linalg.vector_norm(states[odd].double(), dim=1).clamp_max(3e38).bfloat16()
    bits = states.view(torch.int16)
    high, low = bits.amax(dim=1), bits.amin(dim=1)
    constant = (high == low) | (norms == 0)
    if hidden_size > 1 and bool(constant.any()):
        constant[constant.clone()] = (states[constant] == states[constant][:, :1]).all(dim=1)
        zero = constant & (norms == 0)
        found.add(VARIED, *([f"{where}, {positions(zero)}: all zeros"] if bool(zero.any()) else []))
        other = constant & ~zero
        found.add(VARIED, *([f"{where}, {positions(other)}: one value throughout"] if bool(other.any()) else []))
        if bool(constant.any()):
            return None
    alike = bool((high == high[0]).all()) and bool((low == low[0]).all())
    if seq > 1 and alike and bool((states == states[:1]).all()):
        found.add(VARIED, f"{where}: all {seq} tokens have the same state")
    return torch.stack((high, low, norms.view(torch.int16)))


def _not_finite(states: torch.Tensor, odd: torch.Tensor, where: str, found: Examined) -> bool:
    """Look for NaN and infinity at the positions in ``odd``, bool ``[seq]``; return whether there are any."""
    suspects = states[odd]
    is_nan, is_infinite = torch.zeros_like(odd), torch.zeros_like(odd)
    is_nan[odd] = torch.isnan(suspects).any(dim=1)
    is_infinite[odd] = torch.isinf(suspects).any(dim=1)
    for name, marked in (("NaN", is_nan), ("infinity", is_infinite & ~is_nan)):
        if bool(marked.any()):
            found.add(FINITE, f"{where}, {positions(marked)}: {name}")
            found.not_finite += [(where, position, name) for position in marked.nonzero()[:SHOWN_POSITIONS, 0].tolist()]
    return bool(is_nan.any() or is_infinite.any())

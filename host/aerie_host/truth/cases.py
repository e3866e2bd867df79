"""Batches that have broken extraction before, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from aerie_host.truth.checkpoints import END_OF_SEQUENCE, VOCABULARY


@dataclass(frozen=True)
class Batch:
    """One call of ``generate``: why it is asked, and the token ids of each sequence."""

    name: str
    sequences: list[list[int]]


def _tokens(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(END_OF_SEQUENCE + 1, VOCABULARY) for _ in range(count)]


def batches(seed: int, max_length: int, concurrent: int, block: int, budget: int) -> list[Batch]:
    """Return the batches in the order in which one generator is to be asked for them.

    Args:
        seed: draws lengths and tokens; the same seed gives the same batches.
        max_length: the longest sequence that the engine takes whole.
        concurrent: the engine's limit of sequences in one step.
        block: tokens in a block of the key/value cache: prefixes are shared around its multiples.
        budget: tokens that one scheduler step takes.

    """
    draw = random.Random(seed)  # noqa: S311 - test data, not a secret
    prefix = _tokens(draw, 8 * block)
    shared = [prefix[:length] + _tokens(draw, draw.randrange(0, 40)) for length in (
        1, block - 1, block, block + 1, 3 * block, 4 * block + 5, 8 * block,
    )]  # fmt: skip
    twice = _tokens(draw, 3 * block + 1)
    # The end-of-sequence token inside a prompt must not end it.
    ending = [*_tokens(draw, 20), END_OF_SEQUENCE, *_tokens(draw, 20)]
    many = [_tokens(draw, draw.choice((1, 2, 7, 42, 46, 43, 45, 37, 48))) for _ in range(concurrent + 5)]
    long = [_tokens(draw, max_length) for _ in range(budget // max_length + 2)]
    mixed = [*shared, twice, ending, [7], list(twice), *_varied(draw, max_length)]
    return [
        Batch("one sequence", [_tokens(draw, 97)]),
        Batch("shared prefixes, equal sequences, mixed lengths", mixed),
        Batch("the same call again", mixed),
        Batch("more sequences than the engine runs at once", many),
        Batch("more tokens than one step takes", [*long, *many[:3]]),
        Batch("one short sequence after a large call", [[5, 6, 7]]),
    ]


def _varied(draw: random.Random, max_length: int) -> list[list[int]]:
    lengths = [1, 2, max_length - 1, max_length, *(draw.randrange(1, max_length) for _ in range(4))]
    draw.shuffle(lengths)
    return [_tokens(draw, length) for length in lengths]

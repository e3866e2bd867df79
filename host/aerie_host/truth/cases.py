"""Cases that have broken extraction before, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from aerie_host.truth.checkpoints import END_OF_SEQUENCE, VOCABULARY
from aerie_host.truth.names import NAMES

# How a case is run: in one call of ``generate``; in a call for each sequence; streamed to files, as an extraction does.
# Before a case "after", a call of the same kind is broken off half-way.
Way = Literal["call", "alone", "files", "call after", "files after"]


@dataclass(frozen=True)
class Case:
    """Token ids of sequences, and the way in which they are run."""

    key: str
    sequences: list[list[int]]
    way: Way = "call"

    @property
    def name(self) -> str:
        """Its name in a report."""
        return NAMES[self.key]


def layer_ids(seed: int, count: int) -> list[int]:
    """Layers to capture of a model with ``count``: out of order, one twice, the first and the last among them.

    A set of layers would lose order and repeats.
    """
    draw = random.Random(seed)  # noqa: S311 - test data, not a secret
    twice = draw.randrange(1, count - 1)
    while True:
        layers = draw.sample([0, count - 1, twice, twice], 4)
        if layers != sorted(layers):
            return layers


def _tokens(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(END_OF_SEQUENCE + 1, VOCABULARY) for _ in range(count)]


def cases(seed: int, max_length: int, concurrent: int, block: int, budget: int) -> list[Case]:
    """Return the cases in the order in which one generator runs them.

    Args:
        seed: draws lengths, prefixes and tokens; the same seed gives the same cases.
        max_length: the longest sequence that the engine takes whole.
        concurrent: the engine's limit of sequences in one step.
        block: tokens in a block of the key/value cache: prefixes are shared around its multiples.
        budget: tokens that one scheduler step takes.

    """
    draw = random.Random(seed)  # noqa: S311 - test data, not a secret
    prefix = _tokens(draw, 8 * block)
    edges = [blocks * block + draw.choice((-1, 0, 1)) for blocks in draw.sample(range(1, 8), 3)]
    within = [draw.randrange(2, 8 * block) for _ in range(2)]
    shared = [prefix[:length] + _tokens(draw, draw.randrange(40)) for length in (1, *edges, *within, 8 * block)]
    twice = _tokens(draw, 3 * block + 1)
    # The end-of-sequence token inside a prompt must not end it.
    ending = [*_tokens(draw, 20), END_OF_SEQUENCE, *_tokens(draw, 20)]
    mixed = [*shared, twice, ending, [7], list(twice), *_varied(draw, max_length)]
    # The shape betrays a sequence that gets the rows of another, unless both have the same length.
    length = draw.randrange(2, 3 * block)
    order = [_tokens(draw, length) for _ in range(12)]
    many = [_tokens(draw, draw.randrange(1, 49)) for _ in range(concurrent + 5)]
    long = [_tokens(draw, max_length) for _ in range(budget // max_length + 2)]
    single = [_tokens(draw, 97)]
    over_budget = [*long, *many[:3]]
    short = [[5, 6, 7]]
    return [
        Case("one", single),
        Case("mixed", mixed),
        Case("again", mixed),
        Case("order", order),
        Case("many", many),
        Case("budget", over_budget),
        Case("short", short),
        Case("files", [*single, *mixed, *mixed, *order, *many, *over_budget, *short], "files"),
        Case("failed", [*single, *shared[:3]], "call after"),
        Case("alone", mixed[:9], "alone"),
        Case("files_failed", mixed[:9], "files after"),
    ]


def _varied(draw: random.Random, max_length: int) -> list[list[int]]:
    lengths = [1, 2, max_length - 1, max_length, *(draw.randrange(1, max_length) for _ in range(4))]
    draw.shuffle(lengths)
    return [_tokens(draw, length) for length in lengths]

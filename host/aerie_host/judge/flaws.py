"""The properties that a sample must have, and the flaws of one that lacks some."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from aerie_host.report.summaries import LayerSum

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

SHOWN_POSITIONS = 5


@dataclasses.dataclass(frozen=True)
class Flaw:
    """A property that does not hold, and where."""

    prop: str
    text: str


@dataclasses.dataclass
class Examined:
    """The result of examining one file.

    Attributes:
        flaws: the properties that do not hold.
        length: tokens; 0 where they cannot be counted.
        trainable: tokens that the loss mask marks.
        tokens: digest of the token ids; empty where they cannot be read.
        layers: sums of norms for each layer; empty for a file with flaws.
        not_finite: layer, position and value (NaN or infinity), the first few.
    """

    flaws: list[Flaw] = dataclasses.field(default_factory=list)
    length: int = 0
    trainable: int = 0
    tokens: bytes = b""
    layers: list[LayerSum] = dataclasses.field(default_factory=list)
    not_finite: list[tuple[str, int, str]] = dataclasses.field(default_factory=list)

    def add(self, prop: str, *texts: str) -> None:
        """Add flaws of one property."""
        self.flaws += [Flaw(prop, text) for text in texts]


def positions(marked: torch.Tensor) -> str:
    """The marked positions of a sample in words, the first five of them; ``marked``: bool ``[seq]``."""
    numbers = marked.nonzero()[:, 0].tolist()
    more = len(numbers) - SHOWN_POSITIONS
    text = ", ".join(map(str, numbers[:SHOWN_POSITIONS])) + (f" and {more} more" if more > 0 else "")
    return f"position {text}" if len(numbers) == 1 else f"positions {text}"

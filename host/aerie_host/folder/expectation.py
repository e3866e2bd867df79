"""What the files of a folder must be, as far as manifest, variables and the files themselves tell."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Expected:
    """What the manifest says of one file; of a file without a manifest nothing but its name is known."""

    file: str
    index: int | None = None
    length: int | None = None
    trainable: int | None = None
    bytes: int | None = None
    sha256: str = ""
    tokens_sha256: str = ""


@dataclasses.dataclass(frozen=True)
class Contract:
    """What holds for all files alike.

    Attributes:
        layers: decoder layers in the order of the tensors; empty where nobody says which they are.
        count: how many tensors of states a file has.
        hidden_size: numbers per row.
        vocabulary: token ids are below this; 0 where nobody says.
        source: who says how many layers there are, in words that follow the number.
    """

    layers: tuple[int, ...]
    count: int
    hidden_size: int
    vocabulary: int
    source: str

    def where(self, *numbers: int) -> str:
        """The tensors with these numbers, by layer where that is known."""
        known = len(self.layers) == self.count
        names = " and ".join(str(self.layers[number] if known else number) for number in numbers)
        word = "layer" if known else "tensor"
        return f"{word}{'s' if len(numbers) > 1 else ''} {names}"

    @property
    def labels(self) -> list[int]:
        """A number for each tensor: its layer, or its place in the file where the layer is not known."""
        return list(self.layers) if len(self.layers) == self.count else list(range(self.count))

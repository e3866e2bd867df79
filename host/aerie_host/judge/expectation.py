"""What the judge expects: of all files of a folder, and of one file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from aerie_host.folder.sample_file import load
from aerie_host.folder.sample_format import HIDDEN_STATES
from aerie_host.shared.model_config import read_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerie_host.folder.manifest import Manifest
    from aerie_host.folder.record import SampleRecord
    from aerie_host.judge.request import JudgeRequest


@dataclasses.dataclass(frozen=True)
class JudgedFile:
    """One file to judge.

    Attributes:
        name: its path relative to the folder.
        record: what the manifest says about it; None where there is no manifest.
    """

    name: str
    record: SampleRecord | None = None


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What holds for all files of a folder alike.

    Attributes:
        layers: decoder layers in the order of the tensors; empty where they are not known.
        count: how many tensors of hidden states a file has.
        hidden_size: numbers per token and layer.
        vocabulary: token ids are below this; 0 where it is not known.
        source: where ``count`` comes from, in words that follow the number.
    """

    layers: tuple[int, ...]
    count: int
    hidden_size: int
    vocabulary: int
    source: str

    def where(self, *numbers: int) -> str:
        """Names of the tensors with these numbers: their layers, where the layers are known."""
        known = len(self.layers) == self.count
        names = " and ".join(str(self.layers[number] if known else number) for number in numbers)
        word = "layer" if known else "tensor"
        return f"{word}{'s' if len(numbers) > 1 else ''} {names}"

    @property
    def labels(self) -> list[int]:
        """A number for each tensor: its layer, or its place in the file where the layer is not known."""
        return list(self.layers) if len(self.layers) == self.count else list(range(self.count))


def expect(folder: Path, files: Sequence[JudgedFile], manifest: Manifest | None, request: JudgeRequest) -> Expectation:
    """The expectation for all files: from the manifest; without one from the request, else from the first good file."""
    if manifest is not None:
        vocabulary = request.vocab_size
        if not vocabulary and (Path(manifest.model) / "config.json").is_file():
            vocabulary = read_facts(Path(manifest.model)).vocab_size
        source = f"were asked: {list(manifest.layers)}"
        return Expectation(manifest.layers, len(manifest.layers), manifest.hidden_size, vocabulary, source)
    count, hidden_size, source = len(request.layers), request.hidden_size, f"were asked: {request.layers}"
    for file in files:
        try:
            states = load(folder / file.name, mapped=True)[HIDDEN_STATES]
            found = len(states), int(states[0].shape[-1])
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            # The file's own check names what is wrong with it.
            continue
        if not count:
            count, source = found[0], f"are in {file.name}"
        hidden_size = hidden_size or found[1]
        break
    return Expectation(tuple(request.layers), count, hidden_size, request.vocab_size, source)

"""The battery's sequences through the path of an extraction: streamed, written by processes, read back from files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from aerie_host.data.samples import Sample
from aerie_host.extract.engine import StatesSource, VllmEngine
from aerie_host.folder import journal
from aerie_host.folder.holds import hold_folder
from aerie_host.folder.layout import Folder
from aerie_host.folder.sample_format import HIDDEN_STATES, INPUT_IDS

if TYPE_CHECKING:
    from pathlib import Path

WRITERS = 2


def through_files(
    generator: Any, sequences: list[list[int]], layers: list[int], path: Path
) -> tuple[list[list[torch.Tensor]], list[str]]:
    """For each sequence the states ``[seq, hidden]`` in its file, one per layer; and what is wrong with files."""
    folder = Folder(path)
    folder.create()
    samples = [Sample(index, index + 1, "", ids, [1] * len(ids)) for index, ids in enumerate(sequences)]
    with hold_folder(folder):
        source = StatesSource(VllmEngine(generator), folder, layers, WRITERS)
        try:
            entries = [entry for finished in source.extract(samples) for entry in finished]
        finally:
            source.close_writers()
    wrong = [] if len(entries) == len(samples) else [f"{len(entries)} files for {len(samples)} sequences"]
    if sorted(journal.read(folder.journal)) != list(range(len(samples))):
        wrong.append("the journal does not name every sequence once")
    states: list[list[torch.Tensor]] = []
    for sample in samples:
        if not folder.sample(sample.index).exists():
            states.append([])
            continue
        data = torch.load(folder.sample(sample.index), weights_only=True)
        states.append(data[HIDDEN_STATES])
        if data[INPUT_IDS].tolist() != sample.input_ids:
            wrong.append(f"file {sample.index} holds the token ids of another sequence")
    return states, wrong

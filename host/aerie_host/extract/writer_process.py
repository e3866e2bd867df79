"""One process that writes samples from shared memory: hashing and the disk get cores of their own.

A sample comes in one piece or, where a step of the model ended within it, in several.
"""

from __future__ import annotations

import dataclasses
import mmap
import signal
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from aerie_host.folder.holds import hold_as_writer
from aerie_host.folder.sample_writer import SampleWriter
from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerie_host.data.samples import Sample
    from aerie_host.folder.layout import Folder
    from aerie_host.folder.record import SampleRecord

# A writer brings files to disk when nothing waits for it, or when this much is not on disk yet.
COMMIT_BYTES = 64 << 20
COMMIT_FILES = 64


@dataclasses.dataclass(frozen=True)
class Area:
    """Shared memory of ``slabs`` slabs with rows of ``hidden_size`` bfloat16 values, and a path to open it by."""

    path: str
    nbytes: int
    slabs: int
    hidden_size: int


class Piece(NamedTuple):
    """Rows of one sample, from ``position`` on; ``offsets`` are the bytes at which each layer's begin."""

    sample: Sample
    slab: int
    offsets: Sequence[int]
    rows: int
    position: int


class Released(NamedTuple):
    """A writer no longer reads a piece's rows."""

    slab: int
    rows: int


class Committed(NamedTuple):
    """Files of these samples are on disk under their names, and in the journal."""

    entries: list[SampleRecord]


class Failed(NamedTuple):
    """A writer gave up: the parts of its ``Refusal``."""

    name: str
    found: str
    wanted: str
    remedy: str


class _Assembly:
    """The rows of samples that came in part so far."""

    def __init__(self, area: mmap.mmap, hidden_size: int) -> None:
        self._area = area
        self._hidden_size = hidden_size
        self._parts: dict[int, tuple[list[torch.Tensor], int]] = {}

    def add(self, piece: Piece) -> list[torch.Tensor] | None:
        """Tensors ``[seq, hidden]``, one per layer, when the sample is complete: looking into the slab where it lies
        there whole, else copies. A pre-empted sample comes again from its start.
        """
        length = len(piece.sample.input_ids)
        here = [
            torch.frombuffer(
                self._area, dtype=torch.bfloat16, count=piece.rows * self._hidden_size, offset=offset
            ).view(piece.rows, self._hidden_size)
            for offset in piece.offsets
        ]
        if piece.rows == length:
            self._parts.pop(piece.sample.index, None)
            return here
        states, covered = self._parts.get(piece.sample.index) or (
            [torch.empty(length, self._hidden_size, dtype=torch.bfloat16) for _ in here],
            0,
        )
        end = piece.position + piece.rows
        if piece.position > covered or end > length:
            raise Refusal(
                "hidden states",
                f"{piece.sample}: positions {piece.position} to {end - 1} came after {covered} of {length}",
                "a state of every position, in order",
            )
        for whole, part in zip(states, here, strict=True):
            whole[piece.position : end] = part
        self._parts[piece.sample.index] = (states, end)
        return self._parts.pop(piece.sample.index)[0] if end == length else None


def serve(connection: Any, area: Area, folder: Folder, layers: list[int]) -> None:
    """What a writer process does until its driver goes."""
    # Who stops a job by its terminal means the driver; writers end when it does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    with hold_as_writer(folder), open(area.path, "r+b", buffering=0) as memory:  # noqa: PTH123 - no file of a folder
        assembly = _Assembly(mmap.mmap(memory.fileno(), area.nbytes), area.hidden_size)
        writer = SampleWriter(folder, layers, area.hidden_size)
        try:
            _write_all(connection, assembly, writer)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            writer.discard()
        except Refusal as error:
            writer.discard()
            connection.send(Failed(error.name, error.found, error.wanted, error.remedy))


def _write_all(connection: Any, assembly: _Assembly, writer: SampleWriter) -> None:
    while True:
        piece: Piece = connection.recv()
        try:
            states = assembly.add(piece)
            if states is not None:
                writer.write(piece.sample, states)
        except Refusal:
            raise
        except Exception as error:
            trace = traceback.format_exc(limit=-5)
            raise Refusal(str(piece.sample), f"{type(error).__name__}: {error}\n{trace}") from error
        connection.send(Released(piece.slab, piece.rows))
        if writer.uncommitted_bytes >= COMMIT_BYTES or writer.uncommitted >= COMMIT_FILES or not connection.poll():
            connection.send(Committed(writer.commit()))

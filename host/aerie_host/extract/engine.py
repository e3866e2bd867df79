"""From the target model to the files: an engine captures states in shared memory, writers take them from there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from aerie_host.extract.writers import Area, Piece, Writers, worker_count
from aerie_host.report.outcome import JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from aerie_host.data.samples import Sample
    from aerie_host.folder.layout import Folder
    from aerie_host.folder.record import SampleRecord


class Rows(NamedTuple):
    """Rows ``[begin, end)`` of ``slab`` hold positions of the sequence ``name`` from ``position`` on."""

    name: str
    slab: int
    position: int
    begin: int
    end: int


class Engine(Protocol):
    """Runs the target model and leaves what it captured in shared memory."""

    @property
    def area(self) -> Area:
        """The shared memory."""

    def offsets(self, slab: int, row: int) -> Sequence[int]:
        """Bytes at which a row begins, one for each layer asked."""

    def stream(
        self, sequences: Iterable[tuple[str, list[int]]], free_slab: Callable[[], int]
    ) -> Generator[Sequence[tuple[str, int, int, int, int]], None, None]:
        """Prefill named sequences; yield ``Rows``, all those of a slab at once. The slab is the reader's then."""

    def close(self) -> None:
        """Let go of the model."""


class StatesSource:
    """Has files written for samples: the engine's next step runs while writers are at work on those before."""

    def __init__(self, engine: Engine, folder: Folder, layers: Sequence[int], writers: int = 0) -> None:
        self._engine = engine
        self._writers = Writers(worker_count(writers), engine.area, folder, layers)

    def extract(self, samples: Iterable[Sample]) -> Generator[list[SampleRecord], None, None]:
        """Extract samples; yield the entries of files as they are finished, in any order, none at times."""
        under_way: dict[str, Sample] = {}

        def sequences() -> Iterator[tuple[str, list[int]]]:
            for sample in samples:
                under_way[str(sample.index)] = sample
                yield str(sample.index), sample.input_ids

        with contextlib.closing(self._engine.stream(sequences(), self._writers.free_slab)) as steps:
            for rows in steps:
                self._writers.give(self._piece(under_way, Rows(*row)) for row in rows)
                yield self._writers.finished()
        if under_way:
            raise JobError(f"samples {', '.join(list(under_way)[:10])}: not all of their rows came back")
        yield self._writers.finished(wait=True)

    def _piece(self, under_way: dict[str, Sample], rows: Rows) -> Piece:
        sample = under_way[rows.name]
        if rows.position + rows.end - rows.begin == len(sample.input_ids):
            del under_way[rows.name]
        offsets = self._engine.offsets(rows.slab, rows.begin)
        return Piece(sample, rows.slab, offsets, rows.end - rows.begin, rows.position)

    @property
    def waited_seconds(self) -> float:
        """How long the engine waited for writers."""
        return self._writers.waited_seconds

    def close_writers(self) -> None:
        """End the writers; the engine can be used on."""
        self._writers.close()

    def close(self) -> None:
        """End writers and engine."""
        self.close_writers()
        self._engine.close()


class VllmEngine:
    """The patched generator of speculators as an engine."""

    def __init__(self, generator: Any) -> None:
        slabs = generator.slabs
        if slabs.dtype != torch.bfloat16:
            raise JobError(f"the model computes in {slabs.dtype}; files for training hold torch.bfloat16")
        self.area = Area(slabs.path, slabs.nbytes, slabs.count, slabs.hidden)
        self._generator = generator

    def offsets(self, slab: int, row: int) -> list[int]:
        """See ``Engine``."""
        found: list[int] = self._generator.slabs.offsets(slab, row)
        return found

    def stream(
        self, sequences: Iterable[tuple[str, list[int]]], free_slab: Callable[[], int]
    ) -> Generator[Sequence[tuple[str, int, int, int, int]], None, None]:
        """See ``Engine``."""
        from speculators.data_generation.stream import stream

        yield from stream(self._generator, sequences, free_slab)

    def close(self) -> None:
        """See ``Engine``."""
        self._generator.executor.shutdown()

"""From the target model to the files: an engine captures states in shared memory, writers take them from there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from aerie_host.extract.writer_process import Area, Piece
from aerie_host.extract.writers import Writers, worker_count
from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from aerie_host.data.samples import Sample
    from aerie_host.folder.layout import Folder
    from aerie_host.folder.record import SampleRecord


class Span(NamedTuple):
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
        """Bytes at which a row begins, one for each layer."""

    def stream(
        self, sequences: Iterable[tuple[str, list[int]]], free_slab: Callable[[], int]
    ) -> Generator[Sequence[tuple[str, int, int, int, int]], None, None]:
        """Prefill named sequences; yield the ``Span`` tuples of a slab, all at once. The slab is the reader's then."""

    def close(self) -> None:
        """Let go of the model."""


class StatesSource:
    """Extracts samples to files: writers work on one step of the engine while the next one runs."""

    def __init__(self, engine: Engine, folder: Folder, layers: Sequence[int], writers: int = 0) -> None:
        self._engine = engine
        self._writers = Writers(worker_count(writers), engine.area, folder, layers)

    def extract(self, samples: Iterable[Sample]) -> Generator[list[SampleRecord], None, None]:
        """Extract samples; yield records of files as they are finished, in any order, at times none."""
        under_way: dict[str, Sample] = {}

        def sequences() -> Iterator[tuple[str, list[int]]]:
            for sample in samples:
                under_way[str(sample.index)] = sample
                yield str(sample.index), sample.input_ids

        with contextlib.closing(self._engine.stream(sequences(), self._writers.free_slab)) as steps:
            for spans in steps:
                self._writers.give(self._piece(under_way, Span(*span)) for span in spans)
                yield self._writers.finished()
        if under_way:
            raise Refusal(
                "hidden states",
                f"samples {', '.join(list(under_way)[:10])}: not all of their positions came back",
                "a state of every position",
                "do not extract with this environment; --tags truth shows what is wrong with it",
            )
        yield self._writers.finished(wait=True)

    def _piece(self, under_way: dict[str, Sample], span: Span) -> Piece:
        sample = under_way[span.name]
        if span.position + span.end - span.begin == len(sample.input_ids):
            del under_way[span.name]
        offsets = self._engine.offsets(span.slab, span.begin)
        return Piece(sample, span.slab, offsets, span.end - span.begin, span.position)

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
            raise Refusal(
                "dtype", f"the model computes in {slabs.dtype}", "torch.bfloat16, as files for training hold it"
            )
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

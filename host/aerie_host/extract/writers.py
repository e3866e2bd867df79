"""The pool of writer processes, and the slabs of shared memory that they read.

All pieces of a sample go to one writer. A slab is free again once its pieces are written, or copied when a sample is
not complete yet.
"""

from __future__ import annotations

import collections
import dataclasses
import multiprocessing
import multiprocessing.connection
import os
import time
from typing import TYPE_CHECKING, Any

from aerie_host.extract.writer_process import Area, Committed, Failed, Piece, Released, serve
from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aerie_host.folder.layout import Folder
    from aerie_host.folder.record import SampleRecord

# Pieces that one writer may have waiting: enough to never idle, few enough that the pipes do not fill up.
PIECES = 16
# How long a writer may take to see that its driver has closed; it holds nothing then that is not done again.
CLOSE_SECONDS = 3.0


def worker_count(wanted: int) -> int:
    """The number of writers: ``wanted``, or for 0 three quarters of the cores, at most 16 (docs/benchmarks.md)."""
    return wanted or max(1, min(16, 3 * len(os.sched_getaffinity(0)) // 4))


def _context() -> Any:
    """One process imports torch, and writers are forked from it: seconds, once, and memory that they share.

    That process finds the module by PYTHONPATH; where it cannot, each writer imports torch for itself.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([serve.__module__])
    return context


def warm_up() -> None:
    """Begin to import what writers need, in a process of its own."""
    _context()
    from multiprocessing import forkserver

    forkserver.ensure_running()


@dataclasses.dataclass
class _Writer:
    process: Any
    connection: Any
    pieces: int = 0
    rows: int = 0
    samples: set[int] = dataclasses.field(default_factory=set)


class Writers:
    """A pool of writers, the slabs that they read, and what they have finished."""

    def __init__(self, count: int, area: Area, folder: Folder, layers: Sequence[int]) -> None:
        context = _context()
        self._writers: list[_Writer] = []
        self._free = collections.deque(range(area.slabs))
        self._readers: collections.Counter[int] = collections.Counter()
        self._home: dict[int, _Writer] = {}
        self._entries: list[SampleRecord] = []
        # How long the engine had no slab, or a writer no room: above nothing much, hashing or the disk is what limits.
        self.waited_seconds = 0.0
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=serve, args=(theirs, area, folder, list(layers)), name=f"writer {number}", daemon=True
            )
            process.start()
            theirs.close()
            self._writers.append(_Writer(process, ours))

    def free_slab(self) -> int:
        """A slab that nobody reads; waits for one."""
        began = time.monotonic()
        while not self._free:
            self._receive(self._writers)
        self.waited_seconds += time.monotonic() - began
        return self._free.popleft()

    def give(self, pieces: Iterable[Piece]) -> None:
        """Have the pieces of one slab written: all that are in it."""
        pieces = list(pieces)
        self._readers.update(piece.slab for piece in pieces)
        # Who has become idle since the last step is not to look busy.
        self._receive(self._writers, timeout=0)
        for piece in pieces:
            writer = self._writer_for(piece.sample.index)
            writer.pieces += 1
            writer.rows += piece.rows
            writer.samples.add(piece.sample.index)
            try:
                writer.connection.send(piece)
            except OSError:
                self._receive([writer])

    def _writer_for(self, index: int) -> _Writer:
        """The writer that has the sample already, else the one with the least to do; waits until there is room."""
        began = time.monotonic()
        while True:
            allowed = [self._home[index]] if index in self._home else self._writers
            free = [writer for writer in allowed if writer.pieces < PIECES]
            if free:
                self.waited_seconds += time.monotonic() - began
                return self._home.setdefault(index, min(free, key=lambda writer: writer.rows))
            # Of all: were only one writer heard, it alone would look idle, and get everything.
            self._receive(self._writers)

    def finished(self, wait: bool = False) -> list[SampleRecord]:
        """Entries of the samples finished since the last call; with ``wait``, of all that were given."""
        while wait and any(writer.samples for writer in self._writers):
            self._receive([writer for writer in self._writers if writer.samples])
        self._receive(self._writers, timeout=0)
        entries, self._entries = self._entries, []
        return entries

    def close(self) -> None:
        """End the writers; what they had not finished is done again by the next run."""
        for writer in self._writers:
            writer.connection.close()
        for writer in self._writers:
            writer.process.join(CLOSE_SECONDS)
            if writer.process.is_alive():
                writer.process.kill()
                writer.process.join()

    def _receive(self, writers: list[_Writer], timeout: float | None = None) -> None:
        """Take in what writers say; without a timeout, wait until one says something."""
        by_connection = {writer.connection: writer for writer in writers}
        connections: list[Any] = list(by_connection)
        for connection in multiprocessing.connection.wait(connections, timeout):
            writer = by_connection[connection]
            try:
                while writer.connection.poll():
                    self._take(writer, writer.connection.recv())
            except (EOFError, ConnectionResetError) as error:
                writer.process.join(CLOSE_SECONDS)
                found = f"it ended (exit code {writer.process.exitcode}) with samples {sorted(writer.samples)[:10]}"
                remedy = "run again to continue: what was finished stays"
                raise Refusal(writer.process.name, found, remedy=remedy) from error

    def _take(self, writer: _Writer, reply: Released | Committed | Failed) -> None:
        if isinstance(reply, Failed):
            raise Refusal(*reply)
        if isinstance(reply, Committed):
            self._entries += reply.entries
            for entry in reply.entries:
                writer.samples.discard(entry.index)
                del self._home[entry.index]
            return
        writer.pieces -= 1
        writer.rows -= reply.rows
        self._readers[reply.slab] -= 1
        if not self._readers[reply.slab]:
            self._free.append(reply.slab)

"""The target folder's own speed: files written and synced, nothing else."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier


READY_SECONDS = 60


def _write(number: int, target: str, sizes: list[int], total: int, ready: Barrier) -> None:
    data = memoryview(random.Random(number).randbytes(max(sizes)))  # noqa: S311 - content of files, not secrets
    done = 0
    ready.wait(READY_SECONDS)
    for count, size in enumerate(itertools.cycle(sizes)):
        if done >= total:
            return
        path = Path(target) / f"write-{number}-{count}"
        with path.open("wb") as stream:
            stream.write(data[:size])
            stream.flush()
            os.fsync(stream.fileno())
        done += size


def measure_write(target: str, sizes: list[int], total: int, count: int) -> float:
    """Bytes per second of as many processes, writing and syncing files of these sizes."""
    folder = Path(target) / "write"
    folder.mkdir(parents=True)
    os.sync()
    # As writers are made: the engine's driver, with its threads, is not to be forked.
    context = multiprocessing.get_context("forkserver")
    ready = context.Barrier(count + 1)
    given = (str(folder), sizes, total // count, ready)
    processes = [context.Process(target=_write, args=(number, *given)) for number in range(count)]
    for process in processes:
        process.start()
    ready.wait(READY_SECONDS)
    began = time.perf_counter()
    for process in processes:
        process.join()
    seconds = time.perf_counter() - began
    if any(process.exitcode for process in processes):
        raise SystemExit("the target folder cannot be written at that rate: a writing process failed")
    written = sum(path.stat().st_size for path in folder.iterdir())
    shutil.rmtree(folder)
    return written / seconds

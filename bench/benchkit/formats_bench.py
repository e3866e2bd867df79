"""Samples as .pt and as safetensors, written as writers write them and read as training reads them, in one run.

    write    the writer's own code: into a file, hashed on the way, synced; its digests and CRC included
    read     what the dataset of speculators does with a sample: load it mapped, put the first layers side by side

Before each reading the files are put out of the page cache (`cold`) or read once (`warm`). Formats take turns, and the
median of each is printed, in GB/s and in seconds of processor per GB: on a machine that does other work, the latter say
more.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from aerie_host.data.samples import Sample
from aerie_host.folder import sample_file
from aerie_host.folder.layout import Folder
from aerie_host.folder.sample_format import FORMATS
from aerie_host.folder.sample_writer import SampleWriter
from bench.benchkit.judge_bench import cat, forget, parser

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """Seconds of time and of processor, in all that was timed."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Count what happens meanwhile."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu


def write(folder: Folder, count: int, states: list[torch.Tensor]) -> Clock:
    """What writing ``count`` samples takes."""
    tokens = len(states[0])
    writer = SampleWriter(folder, list(range(len(states))), states[0].shape[1])
    clock = Clock()
    for index in range(count):
        # Moved by as many rows as files before: no two files are alike.
        moved = [layer.roll(index, 0) for layer in states]
        sample = Sample(index, index + 1, "", [index % 1000] * tokens, [1] * tokens)
        with clock.running():
            writer.write(sample, moved)
    with clock.running():
        writer.commit()
    return clock


def as_training(data: dict[str, Any]) -> None:
    """What training makes of a sample."""
    torch.cat(data["hidden_states"][:-1], dim=-1)
    data["hidden_states"][-1].clone()


def read(files: list[Path]) -> Clock:
    """What loading the files and using what is in them takes."""
    clock = Clock()
    with clock.running():
        for file in files:
            as_training(sample_file.load(file, mapped=True))
    return clock


def main() -> int:
    """Command line."""
    options = parser("bench/formats.py", __doc__, 1.0, 5).parse_args()
    torch.set_num_threads(1)
    states = [torch.randn(options.tokens, options.hidden).bfloat16() for _ in range(options.layers)]
    count = max(1, round(options.gigabytes * 1e9 / (options.tokens * options.layers * options.hidden * 2)))
    taken: dict[tuple[str, str], list[Clock]] = {}
    with tempfile.TemporaryDirectory(prefix="aerie-bench-", dir=options.folder) as name:
        folders = {kind: Folder(Path(name) / kind, kind) for kind in FORMATS}
        for number in range(options.repeat):
            for kind in FORMATS if number % 2 else reversed(FORMATS):
                folder = folders[kind]
                folder.create()
                taken.setdefault((kind, "write"), []).append(write(folder, count, states))
                files = folder.training_files()
                for state, prepare in (("cold", forget), ("warm", cat)):
                    prepare(files)
                    taken.setdefault((kind, f"read, {state}"), []).append(read(files))
        size = {kind: sum(file.stat().st_size for file in folders[kind].training_files()) for kind in FORMATS}
    print(f"{count} files, {size['pt'] / 1e9:.2f} GB, one thread, load {os.getloadavg()[0]:.1f}")
    measures = [what for kind, what in taken if kind == FORMATS[0]]
    print(f"{'':<24}" + "".join(f"{what:>12}" for what in measures))
    for kind in FORMATS:
        speeds = [size[kind] / statistics.median(one.wall for one in taken[kind, what]) / 1e9 for what in measures]
        cpus = [statistics.median(one.cpu for one in taken[kind, what]) / size[kind] * 1e9 for what in measures]
        for unit, numbers in (("GB/s", speeds), ("CPU s/GB", cpus)):
            print(f"{kind:<12}{unit:<12}" + "".join(f"{number:>12.2f}" for number in numbers))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs in the ML environment: what processes and shared memory take after 10 and after 200 batches of extraction.

Prints one JSON object: anonymous memory of driver, workers and writers together, what is used of /dev/shm and of GPUs,
how many bytes the largest file has beyond those of its own rows, and the tokens of each step of many short samples.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from aerie_host.data.samples import Sample
from aerie_host.extract.engine import StatesSource, VllmEngine
from aerie_host.extract.generator import EngineLimits, make_generator
from aerie_host.folder.layout import Folder
from aerie_host.truth.checkpoints import build

LAYERS = [0, 2, 5]
STEP = 1024


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for one in found:
        for task in pathlib.Path(f"/proc/{one}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def memory() -> dict[str, int]:
    """Bytes now."""
    private = 0
    for pid in family(os.getpid()):
        rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        private += sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Anonymous:"))
    shm = os.statvfs("/dev/shm")
    return {"private": private, "dev_shm": (shm.f_blocks - shm.f_bfree) * shm.f_frsize, "gpu": gpu_memory()}


def gpu_memory() -> int:
    """Bytes in use on all GPUs; 0 without one."""
    if shutil.which("nvidia-smi") is None:
        return 0
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    told = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout
    return sum(int(line) for line in told.split()) << 20


def steps_of_short_samples(source: StatesSource, scheduler: Any) -> list[int]:
    """Tokens of each step when 128 samples fill one."""
    tokens, schedule = [], scheduler.schedule

    def counted() -> Any:
        scheduled = schedule()
        tokens.append(scheduled.total_num_scheduled_tokens)
        return scheduled

    scheduler.schedule = counted
    for _ in source.extract(Sample(10**6 + n, n + 1, "", [5] * 8, [1] * 8) for n in range(8 * STEP // 8)):
        pass
    return tokens


def main() -> None:
    """Extract 200 batches."""
    home = pathlib.Path(sys.argv[1])
    checkpoint, _ = build("llama", home)
    generator = make_generator(checkpoint, LAYERS, EngineLimits(300, STEP), gpu_memory_utilization=0.5)
    folder = Folder(home / "out")
    folder.create()
    source = StatesSource(VllmEngine(generator), folder, LAYERS, 2)
    # Lengths that do not fit into steps: samples are spread over two, and put together by writers.
    lengths = [300, 211, 37, 150, 299, 1, 88]
    steps, seen, kept = 0, {}, []

    def samples() -> Iterator[Sample]:
        number = 0
        while steps < 200:
            length = lengths[number % len(lengths)]
            yield Sample(number, number + 1, "", [5 + number % 400] * length, [1] * length)
            number += 1

    for entries in source.extract(samples()):
        steps += 1
        kept += [(entry.bytes, entry.length) for entry in entries]
        if steps in (10, 200):
            seen[steps] = memory()
    excess = max(size - length * (len(LAYERS) * 128 * 2 + 16) for size, length in kept)
    tokens = sum(length for _, length in kept)
    short = steps_of_short_samples(source, generator.scheduler)
    print(json.dumps({"10": seen[10], "200": seen[200], "tokens": tokens, "excess": excess, "short": short}))
    source.close()


if __name__ == "__main__":
    main()

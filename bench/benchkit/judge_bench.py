"""Judging a folder of samples beside what limits it, in one run on one machine.

    cat      `cat file… >/dev/null`: the disk
    sha256   digests of all files, as many at once as the judge has workers: what a judge cannot do without
    judge    the command as a host runs it, start of Python and torch included
    files    its part that goes through the files

The folder is made for it, of random numbers, and removed. Before each measurement its files are put out of the page
cache (`cold`) or read once (`warm`). Measurements take turns, and the median of each is printed. `CPU` is what going
through the files used on all cores: on a machine that does other work it says more than the time.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from aerie_host.judge.sample_files import workers
from aerie_host.shared.digests import sha256_file, sha256_json

HOST = Path(__file__).resolve().parents[2] / "host"
WITH_PEAK = """
import resource, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)
"""


def make_folder(path: Path, size: float, layers: int, hidden: int, tokens: int) -> list[Path]:
    """Samples of ``tokens`` tokens, ``size`` bytes in all, and their manifest."""
    generator = torch.Generator().manual_seed(1)
    base = [torch.randn(tokens, hidden, generator=generator).bfloat16() for _ in range(layers)]
    entries, files = [], []
    for index in range(max(1, round(size / (tokens * (layers * hidden * 2 + 16))))):
        file = path / f"data_{index}.pt"
        ids = torch.randint(32000, (tokens,), generator=generator)
        mask = (torch.arange(tokens) >= tokens // 2).long()
        # Moved by as many rows as files before: no two files are alike.
        torch.save({"input_ids": ids, "hidden_states": [one.roll(index, 0) for one in base], "loss_mask": mask}, file)
        sums = {"bytes": file.stat().st_size, "sha256": sha256_file(file)}
        sums |= {"tokens_sha256": sha256_json([ids.tolist(), mask.tolist()])}
        count = {"length": tokens, "trainable": int(mask.sum())}
        entries.append({"index": index, "line": index + 1, "id": "", "file": file.name, **count, **sums})
        files.append(file)
    manifest = {"version": 1, "model": {"path": "none"}, "layers": list(range(layers)), "hidden_size": hidden}
    (path / "manifest.json").write_text(json.dumps({**manifest, "samples": entries}))
    os.sync()
    return files


def forget(files: list[Path]) -> None:
    """Put the files out of the page cache."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def cat(files: list[Path]) -> float:
    """Seconds of reading."""
    began = time.perf_counter()
    subprocess.run(["cat", *map(str, files)], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def sha256(files: list[Path]) -> float:
    """Seconds of hashing, with as many threads as the judge has workers."""
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(workers()) as pool:
        list(pool.map(sha256_file, files))
    return time.perf_counter() - began


def judge(folder: Path) -> tuple[float, float, float, int]:
    """Seconds of the command, seconds and CPU seconds that it was at the files, and its peak of memory in bytes."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", WITH_PEAK, str(HOST), "judge", "--spec", "-"],
        input=json.dumps({"output": str(folder)}),
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"the judge failed: {done.stdout}{done.stderr}")
    data = json.loads(done.stdout.splitlines()[-1])["aerie"]["data"]
    return seconds, data["seconds"], data["cpu_seconds"], int(done.stderr.rsplit("peak ", 1)[1])


def measure(folder: Path, files: list[Path], cold: bool, repeat: int) -> dict[str, float]:
    """Medians in GB/s, the peak of memory in GB, and CPU seconds per GB."""
    size = sum(file.stat().st_size for file in files)
    taken: dict[str, list[float]] = {"cat": [], "sha256": [], "judge": [], "files": []}
    peak, cpus = 0, []

    def prepare() -> None:
        if cold:
            forget(files)
        else:
            cat(files)

    for _ in range(repeat):
        prepare()
        taken["cat"].append(cat(files))
        prepare()
        taken["sha256"].append(sha256(files))
        prepare()
        whole, part, cpu, peak = judge(folder)
        cpus.append(cpu)
        taken["judge"].append(whole)
        taken["files"].append(part)
    speeds = {name: size / statistics.median(times) / 1e9 for name, times in taken.items()}
    return {**speeds, "peak": peak / 1e9, "cpu": statistics.median(cpus) / size * 1e9}


def parser(program: str, description: str | None, gigabytes: float, repeat: int) -> argparse.ArgumentParser:
    """What folder is made and how often it is measured; formats are measured on folders of the same kind."""
    top = argparse.ArgumentParser(
        prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--gigabytes", type=float, default=gigabytes, help=f"size of each folder (default {gigabytes:g})")
    top.add_argument("--hidden", type=int, default=7168, help="hidden size (default 7168)")
    top.add_argument("--layers", type=int, default=4, help="captured layers (default 4)")
    top.add_argument("--tokens", type=int, default=512, help="tokens per sample (default 512)")
    top.add_argument("--repeat", type=int, default=repeat, help=f"how often each is measured (default {repeat})")
    top.add_argument("--folder", help="where to make the folders (default: the system's temporary folder)")
    return top


def main() -> int:
    """Command line."""
    options = parser("bench/judge.py", __doc__, 2.0, 3).parse_args()
    with tempfile.TemporaryDirectory(prefix="aerie-bench-", dir=options.folder) as name:
        folder = Path(name)
        files = make_folder(folder, options.gigabytes * 1e9, options.layers, options.hidden, options.tokens)
        size = sum(file.stat().st_size for file in files)
        print(f"{len(files)} files, {size / 1e9:.2f} GB, {workers()} workers, load {os.getloadavg()[0]:.1f}")
        print(f"{'GB/s':<6} {'cat':>6} {'sha256':>6} {'judge':>6} {'files':>6}   files : cat   CPU s/GB   peak memory")
        for cold in (True, False):
            one = measure(folder, files, cold, options.repeat)
            names = ("cat", "sha256", "judge", "files")
            speeds = " ".join(f"{one[name]:>6.2f}" for name in names)
            share = f"{one['files'] / one['cat']:.0%}"
            print(f"{'cold' if cold else 'warm':<6} {speeds} {share:>12} {one['cpu']:>10.2f} {one['peak']:>10.2f} GB")
    return 0

"""What nvidia-smi says, as data."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any, NamedTuple

GPU_COLUMNS = (
    "index", "uuid", "name", "driver_version", "compute_cap", "memory.total", "memory.used", "mig.mode.current",
    "persistence_mode",
)  # fmt: skip
PROCESS_COLUMNS = ("gpu_uuid", "pid", "process_name", "used_memory")
PROCESS_LINE = re.compile(r"^(\S+), *(\d+), *(.*?) *$", re.MULTILINE)
MIB = 1024 * 1024


class Gpu(NamedTuple):
    """One GPU; memory in bytes, None in use where the driver does not tell."""

    number: int
    uuid: str
    name: str
    driver: str
    capability: str
    total: int
    used: int | None
    mig: str
    persistence: str


class Process(NamedTuple):
    """One process on one GPU; memory in bytes, 0 where the driver does not tell."""

    gpu: str
    pid: int
    name: str
    used: int


class Report(NamedTuple):
    """Everything nvidia-smi says; `problem` is why there are no GPUs, or lines that describe none."""

    gpus: list[Gpu]
    processes: list[Process]
    problem: str


def _rows(text: str, columns: tuple[str, ...]) -> list[list[str]]:
    rows = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(", ")]
        if len(parts) == len(columns):
            rows.append(parts)
    return rows


def _mib(text: str) -> int:
    return int(text) * MIB if text.isdigit() else 0


def parse_gpus(text: str) -> list[Gpu]:
    """GPUs from `--query-gpu` with our columns, csv without head and units."""
    return [
        Gpu(int(r[0]), r[1], r[2], r[3], r[4], _mib(r[5]), _mib(r[6]) if r[6].isdigit() else None, r[7], r[8])
        for r in _rows(text, GPU_COLUMNS)
        if r[0].isdigit()
    ]


def parse_processes(text: str) -> list[Process]:
    """Processes from `--query-compute-apps` with our columns, csv without head and units.

    A process is listed whatever its name is: a name may contain the separators of columns, and even of lines.
    """
    found = []
    for gpu, pid, rest in PROCESS_LINE.findall(text):
        name, comma, used = rest.rpartition(", ")
        has_memory = bool(comma) and (used.isdigit() or used.startswith("["))
        found.append(Process(gpu, int(pid), name if has_memory else rest, _mib(used) if has_memory else 0))
    return found


def query(columns: tuple[str, ...], what: str) -> tuple[str, str]:
    """The answer of nvidia-smi, and what is wrong with it (empty for nothing)."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "", "nvidia-smi is not installed: no NVIDIA driver"
    command = [program, f"--query-{what}={','.join(columns)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return "", f"nvidia-smi: {error}"
    # It prints its errors on standard output.
    problem = f"nvidia-smi: {(done.stdout + done.stderr).strip()}" if done.returncode else ""
    return done.stdout, problem


def gather() -> Report:
    """Ask the driver; never raises."""
    text, problem = query(GPU_COLUMNS, "gpu")
    if problem:
        return Report([], [], problem)
    processes, _ = query(PROCESS_COLUMNS, "compute-apps")
    return report(text, processes)


def report(gpus: str, processes: str) -> Report:
    """The report from the two texts."""
    found = parse_gpus(gpus)
    # A broken GPU has a line of words. Without this the next GPU would be judged in its place.
    unread = [line.strip() for line in gpus.splitlines() if line.strip() and not parse_gpus(line)]
    problem = f"nvidia-smi says: {'; '.join(unread)}" if unread else ""
    return Report(found, parse_processes(processes), problem if found else f"no GPU: {gpus.strip() or 'an empty list'}")


def as_data(report: Report) -> list[dict[str, Any]]:
    """The GPUs for the report of a run."""
    return [gpu._asdict() for gpu in report.gpus]

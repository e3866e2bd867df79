"""The processes of an extraction under bench/kill.py: runs forked from one that imported everything, and victims."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path

import torch

from aerie_host.__main__ import main as program

VICTIMS = ("driver", "writer", "worker", "tree")


def preload() -> None:
    """Import what runs need, once."""
    import vllm.model_executor.models.llama
    import vllm.v1.executor.multiproc_executor
    import vllm.v1.worker.cpu_worker
    from speculators.data_generation import vllm_hidden_states_generator  # noqa: F401 - loaded here for the runs, which are forked
    from transformers import AutoTokenizer  # noqa: F401 - loaded here for the runs, which are forked

    from aerie_host.extract import command as extract  # noqa: F401 - loaded here for the runs, which are forked

    vllm.v1.executor.multiproc_executor.get_mp_context = lambda: multiprocessing.get_context("fork")


def start(spec: Path, home: Path) -> int:
    """Begin a run in a session of its own; its process number."""
    (home / "result.json").unlink(missing_ok=True)
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        # Until then it has none of the processes that are looked for by their session.
        while os.getsid(pid) != pid:
            time.sleep(0.001)
        return pid
    try:
        os.setsid()
        log = os.open(home / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        torch.set_num_threads(1)
        os._exit(program(["extract", "--spec", str(spec), "--out", str(home / "result.json")]))
    finally:
        os._exit(70)


def session(leader: int) -> dict[int, tuple[int, str]]:
    """Running processes of a session: number, parent and command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] not in "ZX":
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(entry.name)] = (int(fields[1]), line)
        except OSError:
            continue
    return found


def find(victim: str, leader: int) -> list[int]:
    """Processes that are this victim at the moment."""
    family = session(leader)
    servers = {pid for pid, (_, line) in family.items() if "multiprocessing.forkserver" in line}
    servers = {pid for pid in servers if family[pid][0] not in servers}
    return {
        "driver": [leader] if leader in family else [],
        "writer": sorted(pid for pid, (parent, _) in family.items() if parent in servers),
        "worker": sorted(pid for pid, (_, line) in family.items() if line.startswith("VLLM::Worker")),
        "tree": sorted(family, key=lambda pid: pid != leader),
    }[victim]


def ended(pid: int) -> bool:
    """Whether a child of ours has ended; it is reaped then."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True

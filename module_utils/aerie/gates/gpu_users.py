"""The processes that use GPUs: whose they are, and ending those that a killed job of ours left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.aerie.shared.processes import PROC, end, identity, is_alive, marker_of

if TYPE_CHECKING:
    from ansible.module_utils.aerie.gates.nvidia import Process
    from ansible.module_utils.aerie.shared.checks import Checks

# Seconds that a left-over worker has to let go of its GPU before it is killed.
GRACE = 10.0


def end_leftovers(checks: Checks, processes: list[Process], check_mode: bool) -> int:
    """End the workers on GPUs that killed jobs of ours left, and nothing else; return how many there were."""
    identities = [identity(pid) for pid in sorted({process.pid for process in processes}) if leftover_of(pid)]
    workers = [worker for worker in identities if worker]
    if not workers:
        return 0
    stay = [] if check_mode else end(workers, GRACE)
    pids = ", ".join(str(worker["pid"]) for worker in workers)
    checks.require(
        "left-over workers", not stay, f"{pids} {'would be' if check_mode else 'not' if stay else 'were'} ended",
        "none left", "end them as the user who owns them" if stay else "",
    )  # fmt: skip
    return len(workers)


def is_ours(pid: int) -> bool:
    """Whether a process carries the marker of a job of ours."""
    return marker_of(pid) is not None


def leftover_of(pid: int) -> str:
    """The folder of our job that left this worker, its main process being gone; empty for any other process."""
    folder = marker_of(pid) or ""
    try:
        main = json.loads((Path(folder) / "job.json").read_text(encoding="utf-8"))["process"]
    except (OSError, ValueError, KeyError, TypeError):
        return folder  # a marker without a record: the folder was removed
    return "" if is_alive(main) else folder


def owner(pid: int) -> str:
    """Whose a process is: its user and command, as far as this user may see them."""
    entry = PROC / str(pid)
    try:
        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").split()
        who = f"uid {entry.stat().st_uid}, {' '.join(command)[:60]}"
    except OSError:
        return "not visible from here"
    whose = "foreign" if not is_ours(pid) else "ours, left over" if leftover_of(pid) else "ours"
    return f"{whose}, {who}"

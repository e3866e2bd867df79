"""Processes that can be proven to be ours: by pid, start time and boot, or by a marker in their environment.

Standard library only; reads ``/proc`` and so needs Linux.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

PROC = Path("/proc")
MARKER = "AERIE_JOB"


def boot_id() -> str:
    """Identity of this boot: pids and start times mean nothing across a restart of the host."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which ``pid`` started; None when it is gone or only waits to be reaped."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name stands in brackets and may itself hold spaces and brackets.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def is_running(pid: int) -> bool:
    """Whether a process has this number and has not ended."""
    return start_time(pid) is not None


def identity(pid: int) -> dict[str, Any] | None:
    """What names one process for ever; None when it is gone."""
    started = start_time(pid)
    return None if started is None else {"pid": pid, "start_time": started, "boot_id": boot_id()}


def is_alive(known: dict[str, Any] | None) -> bool:
    """Whether the process of this identity still runs: not another one that was given the same pid."""
    return bool(known) and identity(int((known or {}).get("pid", 0))) == known


def marker_of(pid: int) -> str | None:
    """The job marker in the environment with which ``pid`` was started, if it is there and we may read it."""
    try:
        entries = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    wanted = MARKER.encode() + b"="
    for entry in entries:
        if entry.startswith(wanted):
            return entry[len(wanted) :].decode(errors="replace")
    return None


def marked(marker: str) -> list[dict[str, Any]]:
    """Identities of all running processes that carry this marker, without the calling one."""
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and marker_of(int(entry.name)) == marker:
            known = identity(int(entry.name))
            if known is not None:
                found.append(known)
    return sorted(found, key=lambda known: int(known["pid"]))


def _signal(known: dict[str, Any], number: int) -> None:
    if is_alive(known):
        try:
            os.kill(int(known["pid"]), number)
        except ProcessLookupError:
            # It ended between the look and the signal, which is what was wanted.
            return


def wait_gone(known: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """Wait until all are gone, at most ``seconds``; return those that are not."""
    deadline = time.monotonic() + seconds
    left = [process for process in known if is_alive(process)]
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = [process for process in left if is_alive(process)]
    return left


def end(known: list[dict[str, Any]], grace: float) -> list[dict[str, Any]]:
    """Ask the processes to end, wait ``grace`` seconds, then kill; return those that still run."""
    for process in known:
        _signal(process, signal.SIGTERM)
    left = wait_gone(known, grace)
    for process in left:
        _signal(process, signal.SIGKILL)
    return wait_gone(left, 10)

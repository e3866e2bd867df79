"""One writer per environment."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class HeldRefusal(Refusal):
    """Another run holds what this one needs."""


@contextmanager
def environment_hold(root: Path, wait_s: float) -> Iterator[None]:
    """Hold the environment at ``root``; wait up to ``wait_s`` seconds for whoever holds it.

    The kernel ends the hold when its holder dies, so none is ever left behind.
    Raises ``HeldRefusal`` naming the holder, ``OSError`` when the lock file cannot be made.
    """
    path = root / ".aerie" / "lock"
    path.parent.mkdir(exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _acquire(handle, root, wait_s)
        os.ftruncate(handle, 0)
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        os.pwrite(handle, f"process {os.getpid()}, since {started}".encode(), 0)
        yield
    finally:
        os.close(handle)


def _acquire(handle: int, root: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while not _try_lock(handle):
        if time.monotonic() >= deadline:
            holder = os.pread(handle, 200, 0).decode(errors="replace") or "a process that has not said its name yet"
            found = f"{root} is being patched by another run ({holder})"
            raise HeldRefusal("hold", found, "one run at a time", "wait for the other run to end, then run again")
        time.sleep(0.05)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True

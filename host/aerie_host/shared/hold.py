"""Holds: mutual exclusion by a file, which the kernel ends when the holder does, however that ends."""

from __future__ import annotations

import fcntl
import time
from typing import IO, Any, Union

# An open file, or its descriptor. A hold lasts until the last descriptor of that opening is closed.
Held = Union[IO[Any], int]
PAUSE_SECONDS = 0.05


def hold_at_once(file: Held) -> bool:
    """Hold ``file`` if nobody else does; whether it is held now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        # Which of the two says that somebody else holds it depends on the filesystem.
        return False
    return True


def hold_within(file: Held, seconds: float) -> bool:
    """Wait up to ``seconds`` to hold ``file``; whether it is held now."""
    deadline = time.monotonic() + seconds
    while not hold_at_once(file):
        if time.monotonic() >= deadline:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


def hold(file: Held, shared: bool = False) -> None:
    """Wait, however long, to hold ``file``: alone, or with others that share it."""
    fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

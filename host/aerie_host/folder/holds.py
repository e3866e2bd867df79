"""Who may work in a folder: one extraction at a time, and its writers.

See ``aerie_host.shared.hold`` for what a hold is.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from aerie_host.folder.layout import OUTPUT
from aerie_host.shared.hold import PAUSE_SECONDS, hold, hold_at_once, hold_within
from aerie_host.shared.processes import is_running
from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerie_host.folder.layout import Folder

# How long a new job waits for the writers of a killed job: each ends after the file that it is writing.
WRITERS_SECONDS = 60.0
# How long it waits for the other processes of a killed job.
ENDING_SECONDS = 20.0


@contextlib.contextmanager
def hold_folder(folder: Folder) -> Iterator[None]:
    """Hold the folder for one extraction. ``Refusal`` names the process that holds it already."""
    deadline = time.monotonic() + ENDING_SECONDS
    with folder.lock_file.open("a+") as stream:
        while not hold_at_once(stream):
            stream.seek(0)
            holder = stream.read().strip()
            # The processes that a killed job started inherit its hold. The next job's start ends them: wait for that.
            gone = holder.isdigit() and not is_running(int(holder))
            if not gone or time.monotonic() > deadline:
                state = ", which has ended; processes that it started have not" if gone else ""
                found = f"{folder.path} is in use by another extraction (process {holder or 'unknown'}{state})"
                raise Refusal(OUTPUT, found, "a folder that no extraction uses", "wait for it, or end it (--tags stop)")
            time.sleep(PAUSE_SECONDS)
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        _wait_for_writers(folder)
        yield


@contextlib.contextmanager
def hold_as_writer(folder: Folder) -> Iterator[None]:
    """Hold the folder as one of several writers. A writer may outlive its killed job by the file that it writes."""
    with folder.writers_lock.open("a") as stream:
        hold(stream, shared=True)
        yield


def _wait_for_writers(folder: Folder) -> None:
    with folder.writers_lock.open("a") as stream:
        if not hold_within(stream, WRITERS_SECONDS):
            found = f"writers of an earlier extraction are still at work in {folder.path} after {WRITERS_SECONDS:g} s"
            raise Refusal(
                OUTPUT, found, "a folder that no process writes", "wait until they have ended, then run again"
            )

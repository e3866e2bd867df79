"""How an extraction ends early: by a signal, or because a step of it hangs."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerie_host.extract.progress import Progress

# What a job that ends itself may take for its last words.
LAST_WORDS_SECONDS = 10.0


class Stopped(BaseException):
    """The job was told to end. No ``Exception``, so that no ``except Exception`` of a library catches it."""


def _stop(number: int, _frame: object) -> None:
    raise Stopped(f"stopped by {signal.Signals(number).name}; what was finished stays")


def stop_on_signals() -> None:
    """From now on SIGTERM and SIGINT raise ``Stopped`` in the main thread."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)


def give_up(progress: Progress, message: str) -> None:
    """End a process that hangs where no exception reaches, as in a library's wait. Called from another thread."""
    # Should this thread hang too, the process ends without words: the timer needs neither Python's lock nor a stream's.
    nowhere = Path(os.devnull).open("w")  # noqa: SIM115 - it stays open to the end
    faulthandler.dump_traceback_later(LAST_WORDS_SECONDS, exit=True, file=nowhere)
    progress.last_words()
    print(f"aerie: {message}; stacks of all threads follow", file=sys.stderr, flush=True)
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
    os._exit(1)

"""How far a job is, as a small file that others poll."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

WRITE_EVERY_SECONDS = 0.5


class Progress:
    """Counts finished samples and tokens and keeps ``path`` up to date."""

    def __init__(self, path: Path, total: int, total_tokens: int, kept: int) -> None:
        self._path = path
        self._state: dict[str, Any] = {"phase": "preparing", "samples": kept, "total": total, "tokens": 0}
        self._state.update(total_tokens=total_tokens, bytes_written=0, tokens_per_s=None, seconds_left=None)
        self._began = time.monotonic()
        self._extracting_since: float | None = None
        self._written = 0.0
        self._write(force=True)

    def phase(self, name: str) -> None:
        """Enter a phase: ``loading the model``, ``extracting``, ``finished``."""
        if name == "extracting":
            self._extracting_since = time.monotonic()
        self._state["phase"] = name
        self._write(force=True)

    def add(self, samples: int, tokens: int, written: int) -> None:
        """Count what one batch finished."""
        state = self._state
        state["samples"] += samples
        state["tokens"] += tokens
        state["bytes_written"] += written
        rate = state["tokens"] / max(self.extracting_seconds, 1e-9)
        state["tokens_per_s"] = round(rate, 1)
        state["seconds_left"] = round((state["total_tokens"] - state["tokens"]) / rate, 1) if rate else None
        self._write(force=False)

    @property
    def extracting_seconds(self) -> float:
        """Seconds since extraction proper began, 0 before."""
        return 0.0 if self._extracting_since is None else time.monotonic() - self._extracting_since

    @property
    def state(self) -> dict[str, Any]:
        """The numbers now."""
        return {**self._state, "seconds": round(time.monotonic() - self._began, 1)}

    def _write(self, force: bool) -> None:
        now = time.monotonic()
        if not force and now - self._written < WRITE_EVERY_SECONDS:
            return
        self._written = now
        temporary = self._path.with_name(f"{self._path.name}.new")
        temporary.write_text(json.dumps(self.state) + "\n", encoding="utf-8")
        temporary.replace(self._path)


class Watchdog:
    """Ends the process with a message when a step takes longer than it may."""

    def __init__(self, on_timeout: Any) -> None:
        self._on_timeout = on_timeout
        self._timer: threading.Timer | None = None

    def expect(self, what: str, seconds: float) -> None:
        """From now ``what`` may take ``seconds``; forgets the step before."""
        self.rest()
        self._timer = threading.Timer(seconds, self._on_timeout, (f"{what} took longer than {seconds:g} seconds",))
        self._timer.daemon = True
        self._timer.start()

    def rest(self) -> None:
        """Expect nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

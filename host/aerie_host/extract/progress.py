"""The progress of a job: a small file that others poll, the same as JSON lines, and on request for Prometheus."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from aerie_host.extract import gpu_memory, prometheus
from aerie_host.shared.durable import replace_file
from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

WRITE_EVERY_SECONDS = 0.5
# A line of a week's job every five seconds: 30 MB.
LINE_EVERY_SECONDS = 5.0
SAY_EVERY_SECONDS = 5.0

T = TypeVar("T")


def say(message: str) -> None:
    """One line for the log."""
    print(f"aerie: {time.strftime('%H:%M:%S')} {message}", file=sys.stderr, flush=True)


class Progress:
    """Counts finished samples and tokens and keeps the files up to date.

    ``path`` holds the numbers now, ``path`` with the suffix ``jsonl`` those of the whole run, ``prometheus_file`` (if
    any) the same for node_exporter; ``Refusal`` when that cannot be written at the start, or another job has it.
    Later a file that cannot be written is logged once, and the job goes on.
    """

    def __init__(self, path: Path, prometheus_file: Path | None = None) -> None:
        self._path = path
        self._lines = path.with_suffix(".jsonl")
        self._prometheus: prometheus.MetricsFile | None = None
        self._state: dict[str, Any] = {"phase": "preparing", "looked_at": 0, "samples": 0, "tokens": 0}
        self._state.update(bytes_written=0, tokens_per_s=None, seconds_left=None)
        self._state.update(ceiling_tokens_per_s=None, gpu_memory_bytes=[])
        self._began = time.monotonic()
        self._extracting_since: float | None = None
        self._written = self._lined = 0.0
        self._complained = False
        # How long the engine has waited for files so far; the rest of the time is the model's own.
        self.waited_seconds: Callable[[], float] = lambda: 0.0
        self._lines.unlink(missing_ok=True)
        if prometheus_file is not None:
            try:
                self._prometheus = prometheus.MetricsFile(prometheus_file)
                self._prometheus.write(self.state)
            except OSError as error:
                raise Refusal(
                    "file for node_exporter",
                    f"{prometheus_file} cannot be written: {error.strerror}",
                    remedy="correct hidden_states_prometheus_file",
                ) from error
        self._write(force=True)

    def close(self) -> None:
        """Let another job have the file for node_exporter."""
        if self._prometheus is not None:
            self._prometheus.close()

    def plan(self, total: int, total_tokens: int, kept: int) -> None:
        """Set what there is to do: samples in all, of which some are kept, and the tokens of the others."""
        self._state.update(total=total, total_tokens=total_tokens, samples=kept)

    def look(self, count: int) -> None:
        """Set how many rows or files this phase has been through."""
        self._state["looked_at"] = count
        self._write(force=False)

    def phase(self, name: str) -> None:
        """Enter one of ``prometheus.PHASES``."""
        if name == "extracting":
            self._extracting_since = time.monotonic()
        self._state.update(phase=name, looked_at=0)
        self._write(force=True)

    def last_words(self) -> None:
        """Record that the job failed, from another thread than the one that hangs.

        It waits for nothing: it calls no library (an import may be what hangs), and of the files that the other thread
        may be writing it opens the lines alone.
        """
        self._state.update(phase="failed", looked_at=0)
        self._put(lined=True, suffix="last")

    def add(self, samples: int, tokens: int, written: int) -> None:
        """Count what one batch finished."""
        state = self._state
        state["samples"] += samples
        state["tokens"] += tokens
        state["bytes_written"] += written
        seconds = max(self.extracting_seconds, 1e-9)
        rate = state["tokens"] / seconds
        state["tokens_per_s"] = round(rate, 1)
        state["ceiling_tokens_per_s"] = round(state["tokens"] / max(seconds - self.waited_seconds(), 1e-9), 1)
        state["seconds_left"] = round((state["total_tokens"] - state["tokens"]) / rate, 1) if rate else None
        self._write(force=False)

    @property
    def extracting_seconds(self) -> float:
        """Seconds since extraction proper began, 0 before."""
        return 0.0 if self._extracting_since is None else time.monotonic() - self._extracting_since

    @property
    def state(self) -> dict[str, Any]:
        """The numbers now."""
        return {**self._state, "seconds": round(time.monotonic() - self._began, 1), "time": round(time.time(), 1)}

    def _write(self, force: bool) -> None:
        now = time.monotonic()
        if not force and now - self._written < WRITE_EVERY_SECONDS:
            return
        self._written = now
        lined = force or now - self._lined >= LINE_EVERY_SECONDS
        if lined:
            self._lined = now
            self._state["gpu_memory_bytes"] = gpu_memory.used_bytes()
        self._put(lined)

    def _put(self, lined: bool, suffix: str = "new") -> None:
        try:
            temporary = self._path.with_name(f"{self._path.name}.{suffix}")
            replace_file(self._path, (json.dumps(self.state) + "\n").encode(), temporary=temporary)
            if lined:
                with self._lines.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(self.state) + "\n")
                if self._prometheus is not None:
                    self._prometheus.write(self.state, suffix)
        except OSError as error:
            if not self._complained:
                self._complained = True
                print(f"aerie: the progress cannot be written: {error}", file=sys.stderr, flush=True)


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


@dataclasses.dataclass(frozen=True)
class Watch:
    """The progress of a job, and the time within which each of its steps must end."""

    progress: Progress
    watchdog: Watchdog
    limit: float

    def each(self, phase: str, items: Iterable[T]) -> Iterator[T]:
        """Enter a phase that goes through these items; one that takes longer than ``limit`` seconds ends the job."""
        self.progress.phase(phase)
        self.watchdog.expect(phase, self.limit)
        # Items are quick, and each new limit starts a thread.
        pause = min(SAY_EVERY_SECONDS, self.limit / 10)
        last = time.monotonic()
        try:
            for number, item in enumerate(items):
                if time.monotonic() - last >= pause:
                    last = time.monotonic()
                    self.watchdog.expect(phase, self.limit)
                    self.progress.look(number)
                    say(f"{phase}: {number:,} done")
                yield item
        finally:
            self.watchdog.rest()

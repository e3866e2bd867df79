"""The progress in Prometheus' text format, as the textfile collector of node_exporter reads it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from aerie_host.shared.hold import hold_at_once
from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

PREFIX = "aerie_extraction_"
# Name, key of the state, and help. Gauges: a resumed job begins below where its predecessor ended.
GAUGES = (
    ("looked_at", "looked_at", "Rows of the data, or files there, that the phase has been through."),
    ("samples", "samples", "Samples whose files are on disk."),
    ("samples_wanted", "total", "Samples that the data gives."),
    ("tokens", "tokens", "Tokens extracted by this run."),
    ("tokens_wanted", "total_tokens", "Tokens that this run has to extract."),
    ("written_bytes", "bytes_written", "Bytes of files written by this run."),
    ("tokens_per_second", "tokens_per_s", "Tokens per second since the model was loaded."),
    ("ceiling_tokens_per_second", "ceiling_tokens_per_s", "The same without the time spent waiting for files."),
    ("left_seconds", "seconds_left", "Seconds until this run ends at its pace so far."),
    ("running_seconds", "seconds", "Seconds since this run began."),
    ("updated_timestamp_seconds", "time", "When these numbers were written, in seconds since 1970."),
)
READING, CHECKING = "reading the data", "checking files"
MODE = 0o644
# The first line, a comment in that format, says who keeps the file.
OWNER = re.compile(r"# process (\d+)$")
PHASES = ("preparing", READING, CHECKING, "loading the model", "extracting", "finished", "failed")


def text(state: dict[str, Any]) -> str:
    """The metrics of a state of ``Progress``; what is not known yet is left out."""
    lines = []
    for name, key, meaning in GAUGES:
        if state.get(key) is not None:
            lines += [*_head(name, meaning), f"{PREFIX}{name} {state[key]}"]
    lines += _head("phase", "1 for the phase that the job is in.")
    lines += [f'{PREFIX}phase{{phase="{name}"}} {int(state["phase"] == name)}' for name in PHASES]
    if state["gpu_memory_bytes"]:
        lines += _head("gpu_memory_used_bytes", "Bytes used on each GPU, by all processes.")
        used = enumerate(state["gpu_memory_bytes"])
        lines += [f'{PREFIX}gpu_memory_used_bytes{{gpu="{number}"}} {value}' for number, value in used]
    return "\n".join(lines) + "\n"


def _head(name: str, meaning: str) -> list[str]:
    return [f"# HELP {PREFIX}{name} {meaning}", f"# TYPE {PREFIX}{name} gauge"]


class MetricsFile:
    """The file of one job, which holds it as long as it lives.

    The lock is on the file itself, and each file that replaces it is locked before it gets the name: nothing is left
    beside it, and the kernel lets go of it however the job ends. ``Refusal`` names the job that has it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = self._hold()

    def _hold(self) -> TextIO:
        while True:
            held = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, MODE), "r+", encoding="utf-8")
            if not hold_at_once(held):
                found = OWNER.match(held.readline())
                held.close()
                raise Refusal(
                    "file for node_exporter",
                    f"{self._path} is in use by another extraction (process {found[1] if found else 'unknown'})",
                    "a file for each job",
                    "give this job a hidden_states_prometheus_file of its own",
                )
            if os.path.samestat(os.fstat(held.fileno()), self._path.stat()):
                return held
            # Replaced between opening and locking it.
            held.close()

    def write(self, state: dict[str, Any], suffix: str = "new") -> None:
        """Replace the metrics, whole or not at all; the collector reads no name that does not end in prom."""
        temporary = self._path.with_name(f".{self._path.name}.{suffix}")
        stream = temporary.open("w", encoding="utf-8")
        try:
            hold_at_once(stream)
            stream.write(f"# process {os.getpid()}\n{text(state)}")
            stream.flush()
            # Read by the collector, which is another user.
            temporary.chmod(MODE)
            temporary.replace(self._path)
        except OSError:
            temporary.unlink(missing_ok=True)
            stream.close()
            raise
        self._held.close()
        self._held = stream

    def close(self) -> None:
        """Let another job have it; what is in it stays."""
        self._held.close()

"""The progress in Prometheus' text format, as the textfile collector of node_exporter reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

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


def write(path: Path, state: dict[str, Any]) -> None:
    """Put the metrics under ``path``, whole or not at all; the collector reads no name that does not end in prom."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_text(text(state), encoding="utf-8")
        # Read by the collector, which is another user.
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise

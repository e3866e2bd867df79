"""How far an extraction is, in one line for people: in the job's log and on the controller."""

from __future__ import annotations

from typing import Any


def duration(seconds: float) -> str:
    """Seconds as a person says them: 42 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def progress_line(state: dict[str, Any]) -> str:
    """The numbers of ``progress.json``: samples, tokens/s and their ceiling, GB, time left, GPU memory.

    What is missing or of another type is left out.
    """
    looked_at = state.get("looked_at")
    if isinstance(looked_at, int) and looked_at:
        return f"{state.get('phase')}: {looked_at:,} done"
    # Loading a large model takes longer than any other phase before the extraction.
    loading = [str(state["phase"])] if state.get("phase") == "loading the model" else []
    parts = [*loading, "{}/{} samples".format(state.get("samples", 0), state.get("total", "?"))]
    speed, left = state.get("tokens_per_s"), state.get("seconds_left")
    if isinstance(speed, (int, float)):
        parts.append(f"{speed:,.0f} tokens/s")
        ceiling = state.get("ceiling_tokens_per_s")
        if isinstance(ceiling, (int, float)) and ceiling > 0:
            parts[-1] += f" ({speed / ceiling:.0%} of {ceiling:,.0f} without waiting for files)"
    written = state.get("bytes_written")
    if isinstance(written, (int, float)) and written:
        parts.append(f"{written / 1e9:.1f} GB written")
    if isinstance(left, (int, float)):
        parts.append(f"{duration(left)} left")
    used = state.get("gpu_memory_bytes")
    if isinstance(used, list) and used:
        parts.append("GPU memory {} GB".format(" ".join(f"{gpu / 1e9:.1f}" for gpu in used)))
    return ", ".join(parts)

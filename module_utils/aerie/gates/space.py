"""Disk needed for environment, model and hidden states, against what is free where they will lie."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, NamedTuple

from ansible.module_utils.aerie.gates.machine import existing_parent, free_bytes, size

if TYPE_CHECKING:
    from ansible.module_utils.aerie.shared.checks import Checks

BYTES_PER_VALUE = 2  # bfloat16


class Need(NamedTuple):
    """Bytes that something will take below a path, and how the number came about."""

    what: str
    path: Path
    amount: int
    says: str


def hidden_size_of(model: Path) -> int:
    """The hidden size that a checkpoint's configuration names (also inside a multimodal wrapper), 0 when unknown."""
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    inner = config.get("text_config")
    for part in (inner if isinstance(inner, dict) else {}, config):
        if isinstance(part.get("hidden_size"), int):
            return int(part["hidden_size"])
    return 0


def checkpoint_bytes(model: Path) -> int:
    """Bytes of the weights of a checkpoint, 0 when it is not there."""
    return sum(path.stat().st_size for path in model.glob("*.safetensors"))


def samples_of(data: Path, most: int) -> int:
    """Number of samples: lines of the conversations file, `most` at most (0: all); `most` when lines do not tell."""
    try:
        with data.open("rb") as stream:
            if stream.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"[", b"PAR1")):
                # An array or parquet: only reading it all would tell, which the job does before it spends anything.
                return most
            stream.seek(0)
            lines = sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))
    except OSError:
        return most
    return min(lines, most) if most else lines


def in_shard(samples: int, shard: str) -> int:
    """How many of the samples lie in shard `i/n` at most; all of them for what is no shard, which the job refuses."""
    count = shard.rpartition("/")[2]
    return -(-samples // int(count)) if count.isdigit() and int(count) else samples


def folder_bytes(folder: Path) -> int:
    """Bytes of the files directly in a folder."""
    try:
        with os.scandir(folder) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())
    except OSError:
        return 0


def environment_need(path: Path, stack: dict[str, Any], adopted: bool = False) -> Need:
    """What building the environment takes; nothing when one of this stack is in place, or what is there is adopted."""
    if adopted:
        return Need("environment", path, 0, "adopted")
    try:
        there = json.loads((path / ".aerie" / "manifest.json").read_text())["stack"] == stack["name"]
    except (OSError, ValueError, KeyError):
        there = False
    return Need("environment", path, 0 if there else int(stack["disk_bytes"]), "in place" if there else "to be built")


def model_need(plan: dict[str, Any]) -> Need | None:
    """What a model that is fetched later takes; None when it is there, or comes by another way."""
    model, amount = Path(plan["model"]), int(plan.get("model_bytes") or 0)
    return Need("model", model, amount, "to be fetched") if amount and not (model / "config.json").is_file() else None


def states_need(plan: dict[str, Any]) -> Need | None:
    """What the hidden states take at most: samples x longest sample x layers x hidden size x 2 bytes.

    None when the hidden size or the number of samples is not known yet. Files of an earlier run are deducted: they stay
    or are replaced.
    """
    output = Path(plan["output"])
    if plan.get("bytes"):
        return Need("hidden states", output, int(plan["bytes"]), "as given")
    width = hidden_size_of(Path(plan["model"])) or int(plan.get("hidden_size") or 0)
    samples = in_shard(samples_of(Path(plan["data"]), int(plan.get("samples") or 0)), str(plan.get("shard") or ""))
    if not width or not samples:
        return None
    tokens = samples * int(plan["max_length"])
    count = tokens * int(plan["layers"]) * width * BYTES_PER_VALUE
    text = f"{tokens:,} tokens at most, {size(int(plan['layers']) * width * BYTES_PER_VALUE)} per token"
    return Need("hidden states", output, max(0, count - folder_bytes(output)), text)


def judge(checks: Checks, needs: Iterable[Need]) -> None:
    """One check per filesystem, since what lies on one shares its free bytes."""
    groups: dict[int, list[Need]] = {}
    for need in needs:
        groups.setdefault(existing_parent(need.path).stat().st_dev, []).append(need)
    for group in groups.values():
        place = group[0].path
        free, needed = free_bytes(place), sum(need.amount for need in group)
        parts = ", ".join(f"{need.what} {size(need.amount)} ({need.says})" for need in group)
        missing = size(needed - free)
        checks.require(
            f"disk at {existing_parent(place)}", free >= needed, f"{size(free)} free", f"{size(needed)}: {parts}",
            f"free {missing} there, or put one of them on another filesystem" if free < needed else "",
        )  # fmt: skip

"""The gate of disk space: what environment, model and hidden states need, and what is free where they go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, NamedTuple

from ansible.module_utils.aerie.distributions import manifest
from ansible.module_utils.aerie.gates.machine import existing_parent, free_bytes, size
from ansible.module_utils.aerie.shared import sample_size, shard
from ansible.module_utils.aerie.shared.model_config import hidden_size_of
from ansible.module_utils.aerie.shared.refusal import UsageRefusal

if TYPE_CHECKING:
    from ansible.module_utils.aerie.shared.checks import Checks


class Need(NamedTuple):
    """Bytes that something will take below a path, and in words where the number is from."""

    what: str
    path: Path
    amount: int
    says: str


def checkpoint_bytes(model: Path) -> int:
    """Bytes of the weights of a checkpoint, 0 when it is not there."""
    return sum(path.stat().st_size for path in model.glob("*.safetensors"))


def samples_of(data: Path, most: int) -> int:
    """Number of samples: the lines of the data file, but at most `most` (0: no limit).

    `most` itself for a file whose lines are not samples.
    """
    try:
        with data.open("rb") as stream:
            if stream.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"[", b"PAR1")):
                # A JSON array or parquet: the job reads it whole and counts before it spends anything.
                return most
            stream.seek(0)
            lines = sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))
    except OSError:
        return most
    return min(lines, most) if most else lines


def in_shard(samples: int, text: str) -> int:
    """How many of the samples shard `i/n` has at most; all of them for anything else, which the job itself refuses."""
    try:
        return shard.parse(text).share(samples)
    except UsageRefusal:
        return samples


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
    if manifest.read(path).get("stack") == stack["name"]:
        return Need("environment", path, 0, "in place")
    return Need("environment", path, int(stack["disk_bytes"]), "to be built")


def model_need(plan: dict[str, Any]) -> Need | None:
    """What a model that is fetched later takes; None when it is there, or comes by another way."""
    model, amount = Path(plan["model"]), plan["model_bytes"]
    return Need("model", model, amount, "to be fetched") if amount and not (model / "config.json").is_file() else None


def states_need(plan: dict[str, Any]) -> Need | None:
    """What the hidden states take if each sample has the greatest length.

    None when the hidden size or the number of samples is not known yet. Files of an earlier run are deducted: they stay
    or are replaced.
    """
    output = Path(plan["output"])
    if plan["bytes"]:
        return Need("hidden states", output, plan["bytes"], "as given")
    width = hidden_size_of(Path(plan["model"])) or plan["hidden_size"]
    samples = in_shard(samples_of(Path(plan["data"]), plan["samples"]), plan["shard"])
    if not width or not samples:
        return None
    tokens, layers = samples * plan["max_length"], plan["layers"]
    amount = sample_size.bytes_of_samples(samples, tokens, layers, width)
    text = f"{tokens:,} tokens at most, {size(sample_size.bytes_per_token(layers, width))} per token"
    return Need("hidden states", output, max(0, amount - folder_bytes(output)), text)


def judge(checks: Checks, needs: Iterable[Need]) -> None:
    """One check for each filesystem, because everything on it shares its free space."""
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

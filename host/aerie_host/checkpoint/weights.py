"""Whether a checkpoint's weight files are there and whole, by their headers and sizes alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aerie_host.report.wording import several
from aerie_host.shared.durable import read_json
from aerie_host.shared.refusal import UsageRefusal

if TYPE_CHECKING:
    from pathlib import Path

INDEX = "model.safetensors.index.json"
# What vLLM loads weights from.
KINDS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
# The format allows no longer header.
LONGEST_HEADER = 100_000_000
REMEDY = "fetch the model again, whole"


def require_whole(model: Path) -> None:
    """``UsageRefusal`` names the files that are missing or cut off, as an interrupted download leaves them."""
    index = (read_json(model / INDEX) or {}).get("weight_map")
    names = sorted(set(index.values())) if isinstance(index, dict) else []
    missing = [name for name in names if not (model / name).is_file()]
    if missing:
        lacks = f"{len(missing)} of the {len(names)} weight files in {INDEX}"
        raise UsageRefusal("model", f"{model} lacks {lacks}: {several(missing)}", "all of them", REMEDY)
    if not any(path for kind in KINDS for path in model.glob(kind)):
        raise UsageRefusal("model", f"{model} has no weights", f"files {' or '.join(KINDS)}", REMEDY)
    for path in [model / name for name in names] or sorted(model.glob(KINDS[0])):
        if wrong := _not_whole(path):
            raise UsageRefusal("model", f"{path} {wrong}", "a whole safetensors file", REMEDY, str(path))


def _not_whole(path: Path) -> str:
    """What is wrong with a safetensors file; empty when nothing is."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        begins = stream.read(8)
        length = int.from_bytes(begins, "little")
        if begins == b"version ":
            return "is a pointer of Git LFS"
        if len(begins) < 8 or length > min(size, LONGEST_HEADER):
            return f"is no whole safetensors file: {size} bytes, and no header"
        try:
            header = json.loads(stream.read(length))
            ends = [value["data_offsets"][1] for name, value in header.items() if name != "__metadata__"]
            wanted = 8 + length + max(ends, default=0)
        except (ValueError, LookupError, TypeError, AttributeError):
            return "is no safetensors file: its header cannot be read"
    return "" if size == wanted else f"has {size} bytes, its header names {wanted}"

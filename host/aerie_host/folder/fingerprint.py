"""The fingerprint of an extraction: digests of all that its files depend on. Equal fingerprints give equal files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerie_host.checkpoint.packaged_model import RECORD
from aerie_host.data.samples import SAMPLE_RULES
from aerie_host.shared.digests import folder_digest, sha256_file, sha256_json

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
# Values of parts that a fingerprint lacks: it was made before there was a choice.
DEFAULTS = {"shard": "1/1", "files": "pt"}


def make(
    model: Path,
    data: Path,
    layers: list[int],
    dtype: str,
    identity: dict[str, Any],
    selection: dict[str, Any],
) -> dict[str, Any]:
    """The parts of a fingerprint, by name.

    ``identity``: names and digests of stack, lock and series. ``selection``: the limits that decide which samples the
    data gives.
    """
    return {
        "format": FORMAT,
        "model": folder_digest(model, skip=(RECORD,)),
        "layers": layers,
        "dtype": dtype,
        "stack": identity.get("stack"),
        "lock": identity.get("lock"),
        "series": identity.get("series"),
        "data": sha256_file(data),
        "samples": {**selection, "rules": SAMPLE_RULES},
    }


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The parts that differ, each with both values, in words."""
    changed = []
    for name in sorted(set(before) | set(now)):
        old, new = (fingerprint.get(name, DEFAULTS.get(name)) for fingerprint in (before, now))
        if old != new:
            changed.append(f"{name} ({_short(old)} -> {_short(new)})")
    return changed


def _short(value: Any) -> str:
    text = str(value)
    return text[:12] if isinstance(value, str) and len(text) == 64 else text


def digest(fingerprint: dict[str, Any]) -> str:
    """One sha256 over all parts, hexadecimal."""
    return sha256_json(fingerprint)

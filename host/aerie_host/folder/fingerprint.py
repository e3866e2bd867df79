"""What an extraction depends on, as digests: equal fingerprints give equal files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerie_host.checkpoint.packaged_model import RECORD
from aerie_host.data.samples import SAMPLE_RULES
from aerie_host.shared.digests import folder_digest, sha256_file, sha256_json

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
# What a fingerprint means that does not say it: it was made before there was a choice.
DEFAULTS = {"shard": "1/1", "files": "pt"}


def make(
    model: Path,
    data: Path,
    layers: list[int],
    dtype: str,
    identity: dict[str, Any],
    selection: dict[str, Any],
) -> dict[str, Any]:
    """The fingerprint's parts by name.

    ``identity``: names and digests of stack, lock and series. ``selection``: what decides which samples the data gives.
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
    """The parts that changed, each in words."""
    changed = []
    for name in sorted(set(before) | set(now)):
        old, new = (one.get(name, DEFAULTS.get(name)) for one in (before, now))
        if old != new:
            changed.append(f"{name} ({_short(old)} -> {_short(new)})")
    return changed


def _short(value: Any) -> str:
    text = str(value)
    return text[:12] if isinstance(value, str) and len(text) == 64 else text


def digest(fingerprint: dict[str, Any]) -> str:
    """One digest over all parts."""
    return sha256_json(fingerprint)

"""The manifest of an environment: written when it is finished, so an environment without one never was."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Mapping

from ansible.module_utils.aerie.shared.durable import read_json, write_json

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.environment.comparison import InstalledVersion, LockedVersion

MANIFEST = ".aerie/manifest.json"
SCHEMA = 1


def read(environment: Path) -> dict[str, Any]:
    """What was recorded when the environment was finished; empty when it never was."""
    document = read_json(environment / MANIFEST) or {}
    return document if document.get("schema") == SCHEMA else {}


def make(
    lock_text: str, stack: str, locked: Mapping[str, LockedVersion], installed: Mapping[str, InstalledVersion]
) -> dict[str, Any]:
    """The manifest of an environment that was just built."""
    return {
        "schema": SCHEMA,
        "stack": stack,
        "lock_sha256": hashlib.sha256(lock_text.encode()).hexdigest(),
        "distributions": {
            name: {"version": pin.version, "record": installed[name].record, "hashes": sorted(pin.hashes)}
            for name, pin in sorted(locked.items())
            if name in installed
        },
    }


def write(environment: Path, document: dict[str, Any]) -> None:
    """Write the manifest, durably: from here on the environment counts as finished."""
    path = environment / MANIFEST
    path.parent.mkdir(exist_ok=True)
    write_json(path, document)

"""The manifest of an environment: written when it is finished, so an environment without one never was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.shared.durable import read_json, write_json

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = ".aerie/manifest.json"
SCHEMA = 1


def read(environment: Path) -> dict[str, Any]:
    """What was recorded when the environment was finished; empty when it never was.

    `stack` and `lock_sha256` say what it was built from, `distributions` has `version`, `record` (the sha256 of RECORD)
    and `hashes` (the digests that the lock had for the wheel) by name, `python` is the Python it was built from.
    """
    document = read_json(environment / MANIFEST) or {}
    return document if document.get("schema") == SCHEMA else {}


def write(environment: Path, content: dict[str, Any]) -> None:
    """Write the manifest, durably: from here on the environment counts as finished."""
    path = environment / MANIFEST
    path.parent.mkdir(exist_ok=True)
    write_json(path, {"schema": SCHEMA, **content})

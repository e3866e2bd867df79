"""Digests of files that may not be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible.module_utils.aerie.shared.digests import sha256_file

if TYPE_CHECKING:
    from pathlib import Path


def file_digest(path: Path) -> str:
    """The hexadecimal sha256 of a file, empty when there is none that can be read."""
    try:
        return sha256_file(path)
    except OSError:
        return ""

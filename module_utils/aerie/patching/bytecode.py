"""Compiled copies of a source file: Python may run them without a look at the source."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from ansible.module_utils.aerie.distributions.installed import read_or_none

if TYPE_CHECKING:
    from pathlib import Path


def compiled_copies(source: Path) -> list[Path]:
    """Every ``.pyc`` of ``source``: of any interpreter, any optimisation level, and the old place beside it."""
    if source.suffix != ".py":
        return []
    copies = sorted((source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"))
    beside = source.with_suffix(".pyc")
    return [*copies, beside] if beside.is_file() else copies


def drop(source: Path) -> None:
    """Remove every compiled copy of ``source``, and ``__pycache__`` when that empties it."""
    cache = source.parent / "__pycache__"
    if cache.is_symlink():
        cache.unlink()  # what it leads to belongs to others
    for copy in compiled_copies(source):
        copy.unlink(missing_ok=True)
    if cache.is_dir() and not any(cache.iterdir()):
        cache.rmdir()


def stale_copies(source: Path, content: bytes) -> list[Path]:
    """The compiled copies that Python would run although they are not of ``content``.

    Only unchecked-hash files (PEP 552) can be: all others are compared with the source by Python.
    """
    stale = []
    for copy in compiled_copies(source):
        header = (read_or_none(copy) or b"")[:16]
        unchecked = int.from_bytes(header[4:8], "little") == 0b01
        # The hash is keyed by the interpreter's magic number; another interpreter's cannot be judged here.
        same = header[:4] == importlib.util.MAGIC_NUMBER and header[8:16] == importlib.util.source_hash(content)
        if unchecked and not same:
            stale.append(copy)
    return stale

"""Copies of pristine files inside an environment, each under its sha256 in ``.aerie/patches/pristine``.

A copy counts only while its bytes have the digest of its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible.module_utils.aerie.distributions import written
from ansible.module_utils.aerie.distributions.installed import sha256
from ansible.module_utils.aerie.shared.durable import read_or_none, sync_folder, write_durably

if TYPE_CHECKING:
    from pathlib import Path


def folder_of(root: Path) -> Path:
    """The folder of the copies in the environment at ``root``."""
    return written.folder_of(root) / "pristine"


def read(root: Path, digest: str) -> bytes | None:
    """The kept bytes with this digest; ``None`` when there is no copy, or when it was altered."""
    content = read_or_none(folder_of(root) / digest)
    return content if content is not None and sha256(content) == digest else None


def keep(root: Path, content: bytes) -> None:
    """Keep a copy of ``content``, unless a sound one is there."""
    digest = sha256(content)
    if read(root, digest) is None:
        write_durably(folder_of(root) / digest, content)


def prune(root: Path, needed: set[str]) -> None:
    """Remove every copy whose digest is not ``needed``."""
    unneeded = [copy for copy in folder_of(root).iterdir() if copy.name not in needed]
    for copy in unneeded:
        copy.unlink()
    if unneeded:
        sync_folder(folder_of(root))

"""Digests of bytes, files, folders and plain data."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import mmap
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

BLOCK = 1 << 20
WHOLE_FILE_LIMIT = 16 << 20
SAMPLED_BLOCKS = 64


def sha256_bytes(data: bytes | memoryview) -> str:
    """Hexadecimal sha256 of ``data``."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hexadecimal sha256 of a file: one update over the mapped file copies nothing and leaves Python's lock once."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        # Nothing cannot be mapped.
        if os.fstat(stream.fileno()).st_size:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                digest.update(content)
    return digest.hexdigest()


def sha256_files(paths: Iterable[Path]) -> dict[Path, str | None]:
    """Digests of many files, None for one that cannot be read. Hashing leaves Python's lock, so threads pay."""

    def digest(path: Path) -> tuple[Path, str | None]:
        try:
            return path, sha256_file(path)
        except OSError:
            return path, None

    with concurrent.futures.ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        return dict(pool.map(digest, paths))


def sha256_json(value: Any) -> str:
    """Digest of plain data, the same for the same content."""
    return sha256_bytes(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def sampled_digest(path: Path) -> str:
    """Digest of a file; of a large one, of its size, both ends and 64 blocks spread evenly.

    Reading every byte of a 600 GB checkpoint takes longer than the job is worth; a checkpoint that was trained
    on, converted or cut off differs in every block.
    """
    size = path.stat().st_size
    if size <= WHOLE_FILE_LIMIT:
        return sha256_file(path)
    digest = hashlib.sha256(f"{size}:".encode())
    with path.open("rb") as stream:
        digest.update(stream.read(BLOCK))
        for number in range(SAMPLED_BLOCKS):
            stream.seek(size * number // SAMPLED_BLOCKS)
            digest.update(stream.read(BLOCK // 16))
        stream.seek(-BLOCK, os.SEEK_END)
        digest.update(stream.read(BLOCK))
    return digest.hexdigest()


def folder_digest(folder: Path, skip: Iterable[str] = ()) -> str:
    """Digest over the names and the (sampled) content of every visible file under ``folder``."""
    left_out = set(skip)
    entries = [
        (str(path.relative_to(folder)), sampled_digest(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.name not in left_out
        and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    ]
    return sha256_json(entries)

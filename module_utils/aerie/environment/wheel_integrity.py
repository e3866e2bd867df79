"""Whether a wheel that nobody vouches for is all that it says: looked at once, before its digest is recorded."""

from __future__ import annotations

import base64
import collections
import csv
import hashlib
import re
import tempfile
import zipfile
import zlib
from typing import TYPE_CHECKING, Iterator

from ansible.module_utils.aerie.environment.network import FetchError
from ansible.module_utils.aerie.shared import elf

if TYPE_CHECKING:
    from pathlib import Path

CHUNK = 1 << 20
# RECORD lists neither its own digest nor those of its signatures.
UNLISTED = re.compile(r"[^/]+\.dist-info/RECORD(\.jws|\.p7s)?")
OPERATORS = re.compile(r"vllm/_C\.[^/]*so")
DAMAGED = "try again; where it happens again, the proxy or the mirror holds a damaged copy"
MADE_SO = "it was made so: take another build; nothing was recorded"


def prove(path: Path, address: str, cuda: str) -> None:
    """Every file is there, as the wheel's RECORD says and no other; vLLM's operators want the stack's CUDA.

    `cuda` is the stack's version, empty for CPU. Reads the whole file: seconds for a gigabyte. Raises `FetchError`.
    """
    try:
        with zipfile.ZipFile(str(path)) as archive:
            files = [one for one in archive.infolist() if not one.is_dir()]
            recorded = _recorded(archive, files)
            for fault in _differences(archive, files, recorded):
                raise FetchError(f"{address}: {fault}", "every file as the wheel's RECORD says", DAMAGED)
            fault = _other_cuda(archive, files, cuda, path.parent)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError) as error:
        raise FetchError(f"{address}: no whole wheel ({error})", "a wheel", DAMAGED) from error
    if fault:
        wanted = f"CUDA {cuda.split('.')[0]}, as the stack's torch has" if cuda else "none, as on CPU"
        raise FetchError(f"{address}: {fault}", wanted, MADE_SO)


def _recorded(archive: zipfile.ZipFile, files: list[zipfile.ZipInfo]) -> dict[str, str]:
    """What RECORD says of each file: `sha256=...`."""
    records = [one for one in files if re.fullmatch(r"[^/]+\.dist-info/RECORD", one.filename)]
    if len(records) != 1:
        raise zipfile.BadZipFile(f"{len(records)} RECORDs")
    lines = archive.read(records[0]).decode("utf-8").splitlines()
    return {row[0]: row[1] for row in csv.reader(lines) if len(row) == 3}


def _differences(archive: zipfile.ZipFile, files: list[zipfile.ZipInfo], recorded: dict[str, str]) -> Iterator[str]:
    """Files that RECORD does not have, has otherwise, or has alone; of a name that stands twice one cannot be right."""
    names = collections.Counter(one.filename for one in files if not UNLISTED.fullmatch(one.filename))
    yield from (f"{name} stands there twice" for name, count in sorted(names.items()) if count > 1)
    listed = {name for name in recorded if not UNLISTED.fullmatch(name)}
    yield from (f"{name} is missing" for name in sorted(listed - set(names)))
    for name in names:
        kind, _, wanted = recorded.get(name, "").partition("=")
        if kind not in ("sha256", "sha384", "sha512"):
            yield f"{name} is not in RECORD with a digest"
            continue
        digest = hashlib.new(kind)
        with archive.open(name) as stream:
            for chunk in iter(lambda: stream.read(CHUNK), b""):
                digest.update(chunk)
        if base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode() != wanted:
            yield f"{name} is another file than RECORD says"


def _other_cuda(archive: zipfile.ZipFile, files: list[zipfile.ZipInfo], cuda: str, scratch: Path) -> str:
    """What is wrong with the CUDA that vLLM's operators ask for; the same is judged again where they are installed."""
    names = [one.filename for one in files]
    operators = [name for name in names if OPERATORS.fullmatch(name)]
    if cuda and not operators and any(name.startswith("vllm/") for name in names):
        return "vllm/_C is missing: a build without compiled operators"
    for name in operators:
        with archive.open(name) as stream, tempfile.TemporaryFile(dir=str(scratch)) as copy:
            for chunk in iter(lambda: stream.read(CHUNK), b""):
                copy.write(chunk)
            asks = elf.cuda_majors(elf.needed_of(copy, name))
        if asks != ({cuda.split(".")[0]} if cuda else set()):
            return f"{name} wants CUDA {'/'.join(sorted(asks)) or 'none'}"
    return ""

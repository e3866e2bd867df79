"""Whether a wheel is intact: looked at once, before its digest is recorded, since nothing else vouches for it yet."""

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

from ansible.module_utils.aerie.environment.network import WheelRefusal
from ansible.module_utils.aerie.shared import elf

if TYPE_CHECKING:
    from pathlib import Path

CHUNK = 1 << 20
# RECORD lists neither its own digest nor those of its signatures.
UNLISTED = re.compile(r"[^/]+\.dist-info/RECORD(\.jws|\.p7s)?")
OPERATORS = re.compile(r"vllm/_C\.[^/]*so")
DAMAGED = "try again; where it happens again, the proxy or the mirror holds a damaged copy"
FAULTY_BUILD = "the build itself is at fault: use another one; nothing was recorded"


def prove(path: Path, address: str, cuda: str) -> None:
    """Refuse a wheel whose files differ from its RECORD, or whose operators want another CUDA than the stack's.

    `cuda` is the stack's version, empty for CPU. Reads the whole file, which takes seconds for a gigabyte.
    Raises `WheelRefusal`.
    """
    try:
        with zipfile.ZipFile(str(path)) as archive:
            files = [entry for entry in archive.infolist() if not entry.is_dir()]
            recorded = _recorded(archive, files)
            for fault in _differences(archive, files, recorded):
                raise WheelRefusal(f"{address}: {fault}", "every file as the wheel's RECORD says", DAMAGED)
            fault = _other_cuda(archive, files, cuda, path.parent)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError) as error:
        raise WheelRefusal(f"{address}: not an intact wheel ({error})", "a wheel", DAMAGED) from error
    if fault:
        wanted = f"CUDA {cuda.split('.')[0]}, as the stack's torch has" if cuda else "none, as on CPU"
        raise WheelRefusal(f"{address}: {fault}", wanted, FAULTY_BUILD)


def _recorded(archive: zipfile.ZipFile, files: list[zipfile.ZipInfo]) -> dict[str, str]:
    """The digest of each file as RECORD has it: `sha256=...`."""
    records = [entry for entry in files if re.fullmatch(r"[^/]+\.dist-info/RECORD", entry.filename)]
    if len(records) != 1:
        raise zipfile.BadZipFile(f"{len(records)} RECORDs")
    lines = archive.read(records[0]).decode("utf-8").splitlines()
    return {row[0]: row[1] for row in csv.reader(lines) if len(row) == 3}


def _differences(archive: zipfile.ZipFile, files: list[zipfile.ZipInfo], recorded: dict[str, str]) -> Iterator[str]:
    """Faults of files: missing, not in RECORD, unlike RECORD, or there twice."""
    names = collections.Counter(entry.filename for entry in files if not UNLISTED.fullmatch(entry.filename))
    yield from (f"{name} is there twice" for name, count in sorted(names.items()) if count > 1)
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
            yield f"{name} differs from its digest in RECORD"


def _other_cuda(archive: zipfile.ZipFile, files: list[zipfile.ZipInfo], cuda: str, scratch: Path) -> str:
    """What is wrong with the CUDA that vLLM's operators ask for; empty when nothing is.

    `wheel_compatibility` looks again at what is installed.
    """
    names = [entry.filename for entry in files]
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

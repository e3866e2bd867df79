"""Installed distributions: where they are, and their RECORD, the list of files that the wheel delivered."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible.module_utils.aerie.distributions.names import normalize
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path


def sha256(content: bytes) -> str:
    """The hexadecimal sha256 of ``content``."""
    return hashlib.sha256(content).hexdigest()


def record_hash(content: bytes) -> str:
    """The form in which RECORD writes a digest."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@dataclass(frozen=True)
class Record:
    """A RECORD file: its bytes, and the hexadecimal sha256 per path (``None`` where it has none)."""

    content: bytes
    digests: dict[str, str | None]

    @classmethod
    def parse(cls, content: bytes) -> Record:
        """Read RECORD; digests of other algorithms than sha256 count as absent."""
        digests: dict[str, str | None] = {}
        for row in csv.reader(content.decode("utf-8").splitlines()):
            if not row:
                continue
            digest = None
            if len(row) > 1 and row[1].startswith("sha256="):
                encoded = row[1][len("sha256=") :]
                digest = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()
            digests[row[0]] = digest
        return cls(content, digests)

    def without(self, paths: set[str]) -> Record:
        """RECORD without the lines of ``paths``; all other bytes stay as they are."""
        kept = b""
        for line in self.content.split(b"\n"):
            row = next(csv.reader([line.decode("utf-8")]), [])
            if not row or row[0] not in paths:
                kept += line + b"\n"
        return Record.parse(kept[:-1])

    def with_files(self, added: dict[str, bytes]) -> bytes:
        """RECORD's bytes with one line more for each added path."""
        end = b"\r\n" if b"\r\n" in self.content else b"\n"
        content = self.content
        if content and not content.endswith(b"\n"):
            content += end
        for path in sorted(added):
            content += f"{path},{record_hash(added[path])},{len(added[path])}".encode() + end
        return content


@dataclass(frozen=True)
class Distribution:
    """One installed distribution."""

    name: str
    version: str
    site_packages: Path
    dist_info: Path

    @property
    def record_path(self) -> str:
        """RECORD's path relative to site-packages."""
        return f"{self.dist_info.name}/RECORD"


def environment_root(path: Path) -> Path:
    """The real directory of an environment, given itself, a link to it, or its site-packages."""
    if path.name in ("site-packages", "dist-packages") and len(path.parts) > 3:
        # lib64 is often a link to lib: these are the parents of the path itself, not of what it links to.
        path = path.parents[2]
    return path.resolve()


def python_version(root: Path) -> tuple[int, int] | None:
    """The Python version that ``pyvenv.cfg`` names, if there is one."""
    try:
        text = (root / "pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"^version(?:_info)?\s*=\s*(\d+)\.(\d+)", text, re.MULTILINE)
    return (int(match.group(1)), int(match.group(2))) if match else None


def site_packages_of(root: Path) -> list[Path]:
    """The real site-packages directories of an environment, without repeats through lib64."""
    version = python_version(root)
    python = f"python{version[0]}.{version[1]}" if version else "python3*"
    found: list[Path] = []
    for pattern in (f"{lib}/{python}/{site}-packages" for lib in ("lib", "lib64") for site in ("site", "dist")):
        for candidate in sorted(root.glob(pattern)):
            real = candidate.resolve()
            if real.is_dir() and real not in found:
                found.append(real)
    return found


def _metadata(dist_info: Path) -> tuple[str, str]:
    name = version = ""
    try:
        text = (dist_info / "METADATA").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        if not line:
            break
        if line.startswith("Name:"):
            name = line[5:].strip()
        elif line.startswith("Version:"):
            version = line[8:].strip()
    stem = dist_info.name[: -len(".dist-info")]
    return name or stem.rpartition("-")[0], version or stem.rpartition("-")[2]


def find(root: Path, name: str) -> Distribution | None:
    """Find the distribution ``name`` in the environment at ``root``; ``None`` when not installed.

    Raises ``Refusal`` when two copies are there, since then no digest can be trusted.
    """
    wanted = normalize(name)
    found: list[Distribution] = []
    for site in site_packages_of(root):
        for dist_info in sorted(site.glob("*.dist-info")):
            # The name of the directory says whose it is: reading every METADATA would take longer than everything else.
            if normalize(dist_info.name[: -len(".dist-info")].rpartition("-")[0]) == wanted:
                real_name, version = _metadata(dist_info)
                found.append(Distribution(real_name, version, site, dist_info))
    if len(found) > 1:
        places = ", ".join(str(copy.dist_info) for copy in found)
        raise Refusal(
            "environment",
            f"{name} is installed {len(found)} times: {places}",
            "one copy",
            f"remove all copies and install {name} once, or make the environment anew",
        )
    return found[0] if found else None

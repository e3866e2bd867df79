"""Compare files on disk with RECORD, the list of files that the wheel delivered."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ansible.module_utils.aerie.distributions.installed import Distribution, Record

if TYPE_CHECKING:
    from ansible.module_utils.aerie.shared.checks import Checks

MANY = 10
SOURCE = (".py", ".so", ".pyd")


class Deviation(NamedTuple):
    """One file that is not as RECORD says."""

    path: str
    found: str
    wanted: str


def read_record(distribution: Distribution) -> Record | None:
    """RECORD of a distribution, or None when there is none."""
    path = distribution.dist_info / "RECORD"
    return Record.parse(path.read_bytes()) if path.is_file() else None


def compare(
    distribution: Distribution, record: Record, exempt: set[str], only: str = ""
) -> tuple[int, list[Deviation]]:
    """Digest every recorded file whose name ends in ``only``; return how many were read and what deviates.

    ``exempt`` names files that another check judges (those of the series).
    """
    count, deviations = 0, []
    site = str(distribution.site_packages)
    for path, digest in record.digests.items():
        if digest is None or path in exempt or not path.endswith(only):
            continue
        count += 1
        content = _content(os.path.join(site, path))  # noqa: PTH118  (4,000 files: pathlib would take longer than reading)
        if content is None:
            deviations.append(Deviation(path, "no such file", f"sha256 {digest[:12]}…"))
            continue
        actual = hashlib.sha256(content).hexdigest()
        if actual != digest and not _is_own_script(distribution, path, content):
            deviations.append(Deviation(path, f"sha256 {actual[:12]}…, {len(content)} bytes", f"sha256 {digest[:12]}…"))
    return count, deviations


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return None


def _is_own_script(distribution: Distribution, path: str, content: bytes) -> bool:
    """True for a start script whose first line an installer rewrote to name this environment's Python."""
    if not re.match(r"(\.\./)+(bin|Scripts)/[^/]+$", path) or not content.startswith(b"#!"):
        return False
    bin_directory = (distribution.site_packages / path).parent.resolve()
    head = content[:400].decode("utf-8", errors="replace")
    return str(bin_directory) in head or "/usr/bin/env" in head.split("\n")[0]


def strays(distribution: Distribution, record: Record, known: set[str]) -> list[str]:
    """Code files below the distribution's packages that no RECORD line and no series names."""
    tops = {path.split("/")[0] for path in record.digests if path.count("/") and path.endswith(".py")}
    found = []
    for top in sorted(tops - {".."}):
        if top.endswith(".dist-info"):
            continue
        for folder, folders, files in os.walk(distribution.site_packages / top):
            folders[:] = [name for name in folders if name != "__pycache__"]
            inside = Path(folder).relative_to(distribution.site_packages).as_posix()
            found += [
                f"{inside}/{name}"
                for name in files
                if name.endswith(SOURCE)
                and f"{inside}/{name}" not in record.digests
                and f"{inside}/{name}" not in known
            ]
    return found


def check(
    checks: Checks, distribution: Distribution, series_files: set[str], only: str = "", with_strays: bool = True
) -> int:
    """Add the checks of one distribution; return how many files were read."""
    name = distribution.name
    # An edit in place went through the hard link into uv's cache: what is built from that has it too.
    remedy = (
        f"on the host: uv cache clean {name} (bin/uv, with the site's UV_CACHE_DIR if there is one), and remove the "
        "folder that the environment's link leads to; then --tags provision,patch"
    )
    record = read_record(distribution)
    if record is None:
        checks.add(f"RECORD of {name}", "fail", "no RECORD", "the list that the wheel delivered", remedy)
        return 0
    count, deviations = compare(distribution, record, series_files, only)
    for deviation in deviations[:MANY]:
        path, found, wanted = deviation
        checks.add(f"RECORD of {name}: {path}", "fail", found, wanted, remedy, file=path)
    extra = strays(distribution, record, series_files) if with_strays else []
    for path in extra[:MANY]:
        checks.add(
            f"RECORD of {name}: {path}", "fail", "a code file that no wheel delivered", "no such file",
            f"remove {path}: it may hide or break what {name} imports", file=path,
        )  # fmt: skip
    what = f"{count} {only or 'files'}" if only else f"{count} files"
    found = f"{what} read, {len(deviations)} deviate, {len(extra)} unrecorded"
    bad = bool(deviations or extra or not count)
    checks.require(f"RECORD of {name}", not bad, found, "every file as the wheel delivered it", remedy if bad else "")
    return count

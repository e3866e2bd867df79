"""A bundle: the wheels of a lock, uv and what else a host without a network needs, each file with its digest."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Mapping

from ansible.module_utils.aerie.distributions import lock
from ansible.module_utils.aerie.environment import uv
from ansible.module_utils.aerie.environment.comparison import Difference

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "manifest.json"
SCHEMA = 1
# Names that older wheels use for a C library version.
ALIASES = {"2.17": "manylinux2014", "2.12": "manylinux2010", "2.5": "manylinux1"}
OLDEST_GLIBC = 5


class BundleError(Exception):
    """A bundle that cannot be used; `problems` names each file."""

    def __init__(self, problems: list[Difference]) -> None:
        first = problems[0]
        super().__init__(f"{len(problems)} problems, the first: {first.name}: {first.found}")
        self.problems = problems


def requirements(text: str, python: str) -> str:
    """The lines of a lock that apply to a Python `major.minor.patch`, without their markers, hashes kept.

    A downloader judges markers by the Python that it runs under, which is not the host's.
    """
    wanted = lock.applying(lock.parse(text), lock.marker_environment(python))
    kept = []
    for line in lock.logical_lines(text):
        if line.startswith("-"):
            continue
        for pin in lock.parse(line):
            if wanted.get(pin.name) == pin.version and (
                not pin.marker or lock.evaluate(pin.marker, lock.marker_environment(python))
            ):
                head, _, hashes = line.partition("--hash=")
                kept.append(f"{head.partition(';')[0].strip()} --hash={hashes}".strip())
    return "\n".join(kept) + "\n"


def platforms(glibc: str, machine: str) -> list[str]:
    """The platform tags of wheels that run on a C library version, the newest first."""
    newest = int(glibc.split(".")[1])
    tags = []
    for minor in range(newest, OLDEST_GLIBC - 1, -1):
        tags.append(f"manylinux_2_{minor}_{machine}")
        if f"2.{minor}" in ALIASES:
            tags.append(f"{ALIASES[f'2.{minor}']}_{machine}")
    return [*tags, f"linux_{machine}"]


def contents(folder: Path) -> dict[str, dict[str, Any]]:
    """Digest and size of every file of a bundle but the manifest."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST)
    return {
        path.relative_to(folder).as_posix(): {"sha256": uv.sha256_of(path), "bytes": path.stat().st_size}
        for path in files
    }


def write(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the manifest, last: from here on the bundle counts as whole."""
    temporary = folder / f"{MANIFEST}.tmp"
    document = {"schema": SCHEMA, **facts, "files": contents(folder)}
    temporary.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    temporary.replace(folder / MANIFEST)


def read(folder: Path) -> dict[str, Any]:
    """The manifest; empty when there is none that can be read."""
    try:
        value = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    right = isinstance(value, dict) and value.get("schema") == SCHEMA and isinstance(value.get("files"), dict)
    return value if right else {}


def damages(folder: Path, manifest: Mapping[str, Any]) -> list[Difference]:
    """Every file that is missing, another than the manifest says, or not listed."""
    found = []
    for name, entry in sorted(manifest["files"].items()):
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            found.append(Difference(name, "missing", f"{entry['bytes']} bytes"))
        elif size != entry["bytes"]:
            found.append(Difference(name, f"{size} bytes", f"{entry['bytes']} bytes"))
        elif uv.sha256_of(path) != entry["sha256"]:
            found.append(Difference(name, "another sha256", entry["sha256"]))
    listed = {folder / name for name in manifest["files"]}
    strange = [path for path in sorted((folder / "wheels").glob("*")) if path not in listed]
    found += [Difference(f"wheels/{path.name}", "not in the manifest", "only what was bundled") for path in strange]
    return found


def require(folder: Path, lock_text: str, python: str, machine: str, uv_sha256: str = "") -> None:
    """Refuse a bundle that is damaged, or was made for another lock, Python or machine. Raises `BundleError`.

    Wheels are held to the lock by uv itself, so uv is held to the controller's, unless none of the bundle's will run.
    """
    manifest = read(folder)
    if not manifest:
        raise BundleError([Difference(str(folder / MANIFEST), "missing, or not readable", "the manifest of a bundle")])
    minor = ".".join(python.split(".")[:2])
    expected = {"lock_sha256": hashlib.sha256(lock_text.encode()).hexdigest(), "python": minor, "machine": machine}
    others = [
        Difference(f"{MANIFEST}: {key}", str(manifest.get(key)), value)
        for key, value in expected.items()
        if manifest.get(key) != value
    ]
    problems = others or damages(folder, manifest)
    if not problems and uv_sha256 and uv.sha256_of(folder / "bin" / "uv") != uv_sha256:
        wanted = f"that of the controller, sha256 {uv_sha256}; or a uv of the host, in ml_env_uv"
        problems = [Difference("bin/uv", "another uv", wanted)]
    if problems:
        raise BundleError(problems)

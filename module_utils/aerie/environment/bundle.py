"""A bundle: the wheels of a lock, uv, and whatever else a host without a network needs, each file with its digest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

from ansible.module_utils.aerie.distributions import lock
from ansible.module_utils.aerie.environment.comparison import Difference
from ansible.module_utils.aerie.environment.file_digest import file_digest
from ansible.module_utils.aerie.shared.checks import Check
from ansible.module_utils.aerie.shared.digests import sha256_bytes
from ansible.module_utils.aerie.shared.durable import read_json, write_json
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "manifest.json"
SCHEMA = 1
# Names that older wheels use for a C library version.
ALIASES = {"2.17": "manylinux2014", "2.12": "manylinux2010", "2.5": "manylinux1"}
OLDEST_GLIBC = 5
REMEDY = "copy the bundle again, or make it from the stack's lock with playbooks/bundle.yml"


class BundleRefusal(Refusal):
    """A bundle cannot be used; `problems` has a check for each file that is not as it should be."""

    def __init__(self, problems: list[Difference]) -> None:
        first = problems[0]
        found = f"{len(problems)} problems, the first: {first.name}: {first.found}"
        super().__init__("bundle", found, first.wanted, REMEDY)
        self.problems = [
            Check(f"bundle {problem.name}", "fail", problem.found, problem.wanted, REMEDY) for problem in problems
        ]


def requirements(text: str, python: str) -> str:
    """The lines of a lock that apply to a Python `major.minor.patch`, without their markers, hashes kept.

    A downloader evaluates markers for its own Python, which is not the host's.
    """
    variables = lock.marker_variables(python)
    wanted = lock.applying(lock.parse(text), variables)
    lines = []
    for line in lock.logical_lines(text):
        if line.startswith("-"):
            continue
        for pin in lock.parse(line):
            holds = not pin.marker or lock.evaluate(pin.marker, variables)
            if holds and wanted.get(pin.name) == pin.version:
                head, _, hashes = line.partition("--hash=")
                lines.append(f"{head.partition(';')[0].strip()} --hash={hashes}".strip())
    return "\n".join(lines) + "\n"


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
        path.relative_to(folder).as_posix(): {"sha256": file_digest(path), "bytes": path.stat().st_size}
        for path in files
    }


def write(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the manifest, durably and last: from here on the bundle counts as complete."""
    write_json(folder / MANIFEST, {"schema": SCHEMA, **facts, "files": contents(folder)})


def read(folder: Path) -> dict[str, Any]:
    """The manifest; empty when there is none that can be read."""
    document = read_json(folder / MANIFEST) or {}
    return document if document.get("schema") == SCHEMA and isinstance(document.get("files"), dict) else {}


def damages(folder: Path, manifest: Mapping[str, Any]) -> list[Difference]:
    """Every file that is missing, that differs from the manifest, or that the manifest does not list."""
    found = []
    for name, entry in sorted(manifest["files"].items()):
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            found.append(Difference(name, "missing", f"{entry['bytes']} bytes"))
        elif size != entry["bytes"]:
            found.append(Difference(name, f"{size} bytes", f"{entry['bytes']} bytes"))
        elif file_digest(path) != entry["sha256"]:
            found.append(Difference(name, "another sha256", entry["sha256"]))
    listed = {folder / name for name in manifest["files"]}
    unlisted = [path for path in sorted((folder / "wheels").glob("*")) if path not in listed]
    found += [Difference(f"wheels/{path.name}", "not in the manifest", "only what was bundled") for path in unlisted]
    return found


def require(folder: Path, lock_text: str, python: str, machine: str, uv_sha256: str = "") -> None:
    """Refuse a bundle that is damaged, or was made for another lock, Python or machine. Raises `BundleRefusal`.

    uv itself checks the wheels against the lock, so the bundle's uv must be the controller's (`uv_sha256`), unless the
    host's own uv is used.
    """
    manifest = read(folder)
    if not manifest:
        raise BundleRefusal(
            [Difference(str(folder / MANIFEST), "missing, or not readable", "the manifest of a bundle")]
        )
    minor = ".".join(python.split(".")[:2])
    expected = {"lock_sha256": sha256_bytes(lock_text.encode()), "python": minor, "machine": machine}
    problems = [
        Difference(f"{MANIFEST}: {key}", str(manifest.get(key)), value)
        for key, value in expected.items()
        if manifest.get(key) != value
    ]
    problems = problems or damages(folder, manifest)
    if not problems and uv_sha256 and file_digest(folder / "bin" / "uv") != uv_sha256:
        wanted = f"that of the controller, sha256 {uv_sha256}; or a uv of the host, in ml_env_uv"
        problems = [Difference("bin/uv", "another uv", wanted)]
    if problems:
        raise BundleRefusal(problems)

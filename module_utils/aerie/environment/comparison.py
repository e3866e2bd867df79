"""What a lock wants installed for one Python, and how an installed environment differs from it."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

from ansible.module_utils.aerie.distributions import lock, written
from ansible.module_utils.aerie.distributions.installed import site_packages_of
from ansible.module_utils.aerie.distributions.metadata_folders import is_alias, metadata_folders
from ansible.module_utils.aerie.distributions.names import normalize
from ansible.module_utils.aerie.distributions.versions import meets_pin

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = ".aerie/manifest.json"
SCHEMA = 1
# What compiled code is built for, or what decides numbers: never moved by the way.
CORE = re.compile(r"(torch(vision|audio)?|vllm(-.+)?|transformers|numpy|triton|(flashinfer|nvidia|cuda)-.+)")
HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


class Wanted(NamedTuple):
    """One distribution of the lock: the version, and the digests of which its wheel has one."""

    version: str
    hashes: frozenset[str]


class Has(NamedTuple):
    """One installed distribution: the version, and the sha256 of its RECORD."""

    version: str
    record: str


class Difference(NamedTuple):
    """Why an environment is not what the lock says, about one distribution."""

    name: str
    found: str
    wanted: str


def wanted(text: str, python: str, hashed: bool = True) -> dict[str, Wanted]:
    """What the lock wants for a Python `major.minor.patch`. Raises `LockError`; where `hashed`, for a bare pin too."""
    hashes: dict[tuple[str, str], frozenset[str]] = {}
    pins: list[lock.Pin] = []
    for line in lock.logical_lines(text):
        if line.startswith("-"):
            continue
        pins += lock.parse(line)
        pin, found = pins[-1], frozenset(HASH.findall(line))
        if hashed and not found:
            raise lock.LockError(f"{pin.name} has no hash in the lock")
        hashes[pin.name, pin.version] = hashes.get((pin.name, pin.version), frozenset()) | found
    if not pins:
        raise lock.LockError("the lock pins nothing")
    applying = lock.applying(pins, lock.marker_environment(python))
    return {name: Wanted(version, hashes[name, version]) for name, version in applying.items()}


def installed(root: Path, vllm_distribution: str) -> dict[str, Has]:
    """What an environment holds. The alias that a differently named vLLM writes at first import is none of it."""
    found: dict[str, Has] = {}
    for folder in metadata_folders(site_packages_of(root)):
        if is_alias(folder, vllm_distribution):
            continue
        record = folder.path / "RECORD"
        digest = hashlib.sha256(record.read_bytes()).hexdigest() if record.is_file() else ""
        # Two copies of one name never equal a pin.
        twin = found.get(folder.name)
        version = f"{twin.version} and {folder.version}" if twin else folder.version
        found[folder.name] = Has(version, digest)
    return found


def manifest(root: Path) -> dict[str, Any]:
    """What was recorded when the environment was finished; empty when it never was."""
    try:
        value = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) and value.get("schema") == SCHEMA else {}


def make_manifest(lock_text: str, stack: str, wants: Mapping[str, Wanted], has: Mapping[str, Has]) -> dict[str, Any]:
    """The manifest of a finished environment."""
    return {
        "schema": SCHEMA,
        "stack": stack,
        "lock_sha256": hashlib.sha256(lock_text.encode()).hexdigest(),
        "distributions": {
            name: {"version": one.version, "record": has[name].record, "hashes": sorted(one.hashes)}
            for name, one in sorted(wants.items())
            if name in has
        },
    }


def differences(
    wants: Mapping[str, Wanted], has: Mapping[str, Has], allowed: list[str] | None = None
) -> list[Difference]:
    """Missing, extra and wrong versions."""
    permitted = {normalize(name) for name in allowed or []}
    found = []
    for name, one in sorted(wants.items()):
        version = has[name].version if name in has else ""
        if not version or (one.version and not meets_pin(version, one.version)):
            found.append(Difference(name, version or "not installed", one.version))
    found += [
        Difference(name, has[name].version, "not installed") for name in sorted(set(has) - set(wants) - permitted)
    ]
    return found


def tampered(
    root: Path, recorded: Mapping[str, Any], wants: Mapping[str, Wanted], has: Mapping[str, Has]
) -> list[Difference]:
    """What has the right version and yet is not what was installed by hash.

    That is another RECORD than after the installation, or a digest that the lock no longer has. The patch series
    adds lines to RECORD, and remembers what it made of which RECORD.
    """
    memories = written.read(root)
    found = []
    known = recorded.get("distributions", {})
    for name, one in sorted(wants.items()):
        if name not in has:
            continue
        entry = known.get(name)
        if entry is None:
            found.append(Difference(name, "not installed by us", f"{one.version}, installed by hash"))
            continue
        if not frozenset(entry["hashes"]) <= one.hashes:
            found.append(Difference(name, "installed from a wheel whose digest the lock no longer has", one.version))
        record = has[name].record
        if record != entry["record"] and not memories.wrote_record(name, entry["record"], record):
            found.append(Difference(name, "RECORD is another than after the installation", "unchanged"))
    return found


def core_moves(recorded: Mapping[str, Any], wants: Mapping[str, Wanted]) -> list[str]:
    """Core parts that had another version when the environment was finished than the lock wants now."""
    found = []
    for name, entry in sorted(recorded.get("distributions", {}).items()):
        now = wants[name].version if name in wants else "gone"
        if CORE.fullmatch(name) and entry["version"] != now:
            found.append(f"{name} {entry['version']} -> {now}")
    return found


def listing(versions: Mapping[str, str]) -> str:
    """One line per distribution, for a diff."""
    return "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))


def moves(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, list[str]]:
    """What was added, removed and changed."""
    return {
        "added": [f"{name} {after[name]}" for name in sorted(set(after) - set(before))],
        "removed": [f"{name} {before[name]}" for name in sorted(set(before) - set(after))],
        "changed": [
            f"{name} {before[name]} -> {after[name]}"
            for name in sorted(set(before) & set(after))
            if before[name] != after[name]
        ],
    }

"""What a lock pins for one Python, what an environment has installed, and how the two differ."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

from ansible.module_utils.aerie.distributions import lock, written
from ansible.module_utils.aerie.distributions.installed import site_packages_of
from ansible.module_utils.aerie.distributions.metadata_folders import is_alias, metadata_folders
from ansible.module_utils.aerie.distributions.names import normalize
from ansible.module_utils.aerie.distributions.versions import meets_pin
from ansible.module_utils.aerie.shared.digests import sha256_bytes

if TYPE_CHECKING:
    from pathlib import Path

# Compiled code is built for these, or they decide numbers: they never move unasked.
CORE = re.compile(r"(torch(vision|audio)?|vllm(-.+)?|transformers|numpy|triton|(flashinfer|nvidia|cuda)-.+)")
HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


class LockedVersion(NamedTuple):
    """One distribution of the lock: its version, and the digests that its wheel may have."""

    version: str
    hashes: frozenset[str]


class InstalledVersion(NamedTuple):
    """One installed distribution: its version, and the sha256 of its RECORD ("" where it has none)."""

    version: str
    record: str


class Difference(NamedTuple):
    """One way in which an environment is not what the lock says."""

    name: str
    found: str
    wanted: str


def locked_versions(text: str, python: str, hashed: bool = True) -> dict[str, LockedVersion]:
    """What the lock pins for a Python `major.minor.patch`, by name.

    Raises a `Refusal` for a lock that cannot be read and, where `hashed`, for a pin without a hash.
    """
    hashes: dict[tuple[str, str], frozenset[str]] = {}
    pins: list[lock.Pin] = []
    for line in lock.logical_lines(text):
        if line.startswith("-"):
            continue
        pins += lock.parse(line)
        pin, found = pins[-1], frozenset(HASH.findall(line))
        if hashed and not found:
            raise lock.refusal(f"{pin.name} has no hash", "a sha256 for each pin")
        hashes[pin.name, pin.version] = hashes.get((pin.name, pin.version), frozenset()) | found
    if not pins:
        raise lock.refusal("no pins", "a pin for each distribution")
    versions = lock.applying(pins, lock.marker_variables(python))
    return {name: LockedVersion(version, hashes[name, version]) for name, version in versions.items()}


def installed_versions(root: Path, vllm_distribution: str) -> dict[str, InstalledVersion]:
    """What an environment has installed, by name, without the alias that a vLLM of another name writes."""
    found: dict[str, InstalledVersion] = {}
    for folder in metadata_folders(site_packages_of(root)):
        if is_alias(folder, vllm_distribution):
            continue
        record = folder.path / "RECORD"
        digest = sha256_bytes(record.read_bytes()) if record.is_file() else ""
        twin = found.get(folder.name)
        # Two copies of one distribution never equal a pin.
        version = f"{twin.version} and {folder.version}" if twin else folder.version
        found[folder.name] = InstalledVersion(version, digest)
    return found


def versions_of(installed: Mapping[str, InstalledVersion] | Mapping[str, LockedVersion]) -> dict[str, str]:
    """The versions alone, by name."""
    return {name: entry.version for name, entry in installed.items()}


def differences(
    locked: Mapping[str, LockedVersion], installed: Mapping[str, InstalledVersion], allowed: list[str] | None = None
) -> list[Difference]:
    """Missing, extra and wrong versions; extra distributions in `allowed` do not count."""
    permitted = {normalize(name) for name in allowed or []}
    found = []
    for name, pin in sorted(locked.items()):
        version = installed[name].version if name in installed else ""
        if not version or (pin.version and not meets_pin(version, pin.version)):
            found.append(Difference(name, version or "not installed", pin.version))
    extra = sorted(set(installed) - set(locked) - permitted)
    return found + [Difference(name, installed[name].version, "not installed") for name in extra]


def tampered(
    root: Path,
    manifest: Mapping[str, Any],
    locked: Mapping[str, LockedVersion],
    installed: Mapping[str, InstalledVersion],
) -> list[Difference]:
    """Distributions that have the right version and yet are not what was installed by hash.

    Either RECORD has changed since the installation, or the wheel's digest is no longer in the lock. The patch series
    adds lines to RECORD, and records which RECORD it changed to which.
    """
    ours = written.read(root)
    found = []
    entries = manifest.get("distributions", {})
    for name, pin in sorted(locked.items()):
        if name not in installed:
            continue
        entry = entries.get(name)
        if entry is None:
            found.append(Difference(name, "not installed by us", f"{pin.version}, installed by hash"))
            continue
        if not frozenset(entry["hashes"]) <= pin.hashes:
            found.append(Difference(name, "installed from a wheel whose digest the lock no longer has", pin.version))
        record = installed[name].record
        if record != entry["record"] and not ours.wrote_record(name, entry["record"], record):
            found.append(Difference(name, "RECORD has changed since the installation", "unchanged"))
    return found


def core_moves(manifest: Mapping[str, Any], locked: Mapping[str, LockedVersion]) -> list[str]:
    """Core distributions whose version in the lock is another than when the environment was finished."""
    found = []
    for name, entry in sorted(manifest.get("distributions", {}).items()):
        version = locked[name].version if name in locked else "gone"
        if CORE.fullmatch(name) and entry["version"] != version:
            found.append(f"{name} {entry['version']} -> {version}")
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

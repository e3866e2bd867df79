"""Gates of every host: Python, C library, memory, shared memory, clock; and the sizes that other gates use."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.distributions.versions import release

if TYPE_CHECKING:
    from ansible.module_utils.aerie.shared.checks import Checks

CLOCK_SKEW = 60.0


def size(count: float) -> str:
    """Bytes as a person reads them; decimal units, as disks are sold."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(count) >= limit:
            return f"{count / limit:,.1f} {unit}"
    return f"{count:,.0f} B"


def gather() -> dict[str, Any]:
    """Facts of this machine that cost nothing to read."""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        libc = ""  # another C library than glibc does not know the name
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "libc": libc,
        "memory": memory_available(),
        "shm": free_bytes(Path("/dev/shm")),  # noqa: S108  (measured, not written to)
    }


def memory_available(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that a new process could take: what the kernel calls available, or what a container's limit leaves."""
    available = 0
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        # The kernel takes file pages back from the cgroup when memory is short.
        reclaimable = [
            int(line.split()[1])
            for line in (cgroup / "memory.stat").read_text().splitlines()
            if line.startswith("inactive_file ")
        ]
        return min(available, limit - used + sum(reclaimable))
    except (OSError, ValueError):
        return available  # no cgroup v2, or no limit ("max")


def existing_parent(path: Path) -> Path:
    """The path itself or its nearest parent that exists: where its bytes will be written."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def free_bytes(path: Path) -> int:
    """Bytes that a user without privileges may still write at a path."""
    try:
        stats = os.statvfs(str(existing_parent(path)))
    except OSError:
        return 0
    return stats.f_bavail * stats.f_frsize


def judge_python(checks: Checks, python: dict[str, Any], stack: dict[str, Any]) -> None:
    """A Python was found that runs, and that the lock is for."""
    wanted = str(stack["python"])
    found = f"{python['path']} ({python['version']})" if python["path"] else f"none fits: {python['tried']}"
    checks.require(
        "python",
        bool(python["path"]),
        found,
        f"Python {wanted}",
        f"install one, or name it in ml_env_python ({wanted})",
    )


def judge_platform(checks: Checks, facts: dict[str, Any], stack: dict[str, Any]) -> None:
    """The wheels of the lock run on this C library and processor."""
    kind, _, version = str(facts["libc"]).partition(" ")
    wanted = str(stack["glibc"])
    checks.require(
        "glibc", kind == "glibc" and release(version) >= release(wanted), facts["libc"] or "no glibc",
        f"glibc {wanted} or newer", "use a newer distribution: the wheels of this stack do not load here",
    )  # fmt: skip
    machine = f"{facts['system']} {facts['machine']}"
    checks.require(
        "machine", machine == f"Linux {stack['machine']}", machine, f"Linux {stack['machine']}",
        "use a stack that has wheels for this machine",
    )  # fmt: skip


def judge_memory(checks: Checks, facts: dict[str, Any], stack: dict[str, Any]) -> None:
    """Memory and shared memory suffice for vLLM."""
    needed = int(stack["memory_bytes"])
    checks.require(
        "memory", facts["memory"] >= needed, f"{size(facts['memory'])} available", f"{size(needed)} available",
        "end other programs, or use a larger machine or container limit",
    )  # fmt: skip
    shm = int(stack["shm_bytes"])
    checks.require(
        "shared memory", facts["shm"] >= shm, f"{size(facts['shm'])} free", f"{size(shm)} free",
        f"mount -o remount,size={shm * 2} /dev/shm, or start the container with a larger --shm-size",
    )  # fmt: skip


def judge_clock(checks: Checks, skew: float | None) -> None:
    """The host's clock agrees with the controller's: certificates and file times depend on it."""
    if skew is None:
        checks.add("clock", "n/a", "the controller's time was not given", f"within {CLOCK_SKEW:.0f} s")
        return
    good = abs(skew) <= CLOCK_SKEW
    checks.add(
        "clock", "pass" if good else "warn", f"{skew:+.0f} s from the controller", f"within {CLOCK_SKEW:.0f} s",
        "" if good else "set the clock (chrony, timedatectl set-ntp true): certificates may be refused",
    )  # fmt: skip

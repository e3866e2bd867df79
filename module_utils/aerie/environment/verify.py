"""Whether a finished environment is what its lock says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible.module_utils.aerie.distributions import manifest
from ansible.module_utils.aerie.distributions.versions import satisfies
from ansible.module_utils.aerie.environment import comparison
from ansible.module_utils.aerie.environment.comparison import Difference, InstalledVersion, LockedVersion
from ansible.module_utils.aerie.environment.interpreter import minor, python_version
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.environment.demand import Demand


def verify(
    root: Path, demand: Demand
) -> tuple[list[Difference], dict[str, LockedVersion], dict[str, InstalledVersion]]:
    """Every way in which an environment is not what the lock says; what the lock pins, and what is installed.

    Nothing is known to be pinned where the environment's Python does not run. Raises `Refusal` for a lock that cannot
    be read.
    """
    installed = comparison.installed_versions(root, demand.vllm_distribution)
    try:
        version = python_version(str(root / "bin" / "python"))
    except Refusal as refusal:
        return [Difference("python", refusal.found, refusal.wanted)], {}, installed
    locked = comparison.locked_versions(demand.lock, version)
    found = comparison.differences(locked, installed, demand.allowed)
    found += comparison.tampered(root, manifest.read(root), locked, installed)
    if not satisfies(version, demand.python_versions):
        found.append(Difference("python", version, demand.python_versions))
    elif demand.python and minor(version) != minor(python_version(demand.python)):
        found.append(Difference("python", version, f"the version of {demand.python}"))
    return found, locked, installed

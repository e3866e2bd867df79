"""An environment that an image brings: nothing is installed, everything is compared with the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.distributions.installed import environment_root, site_packages_of
from ansible.module_utils.aerie.environment import comparison, wheel_compatibility
from ansible.module_utils.aerie.environment.interpreter import python_version
from ansible.module_utils.aerie.shared.checks import Checks

if TYPE_CHECKING:
    from ansible.module_utils.aerie.environment.demand import Demand

REBUILD = "rebuild the image from the lock of the stack"


def judge(demand: Demand) -> tuple[Checks, dict[str, Any]]:
    """The checks, and the data of the section; no data where there is no environment. Raises `Refusal`."""
    checks, root = Checks(), environment_root(demand.path)
    if not site_packages_of(root):
        remedy = "correct ml_env_path, or set ml_env_source: lock to build one"
        found = f"no Python environment at {demand.path}"
        checks.add("environment", "fail", found, "one that the image brings", remedy)
        return checks, {}
    installed = comparison.installed_versions(root, demand.vllm_distribution)
    python = python_version(str(root / "bin" / "python"))
    # Versions are compared: hashes are of wheels, and an image does not say which wheel it unpacked.
    locked = comparison.locked_versions(demand.lock, python, hashed=False)
    wrong = comparison.differences(locked, installed, demand.allowed)
    for difference in wrong:
        checks.add(f"distribution {difference.name}", "fail", difference.found, difference.wanted, REBUILD)
    if demand.wheel:
        versions = comparison.versions_of(installed)
        for misfit in wheel_compatibility.misfits(root, demand.wheel, versions, python):
            remedy = "rebuild the image with that wheel"
            checks.add(f"vLLM build: {misfit.name}", "fail", misfit.found, misfit.wanted, remedy)
    good = len(locked) - sum(difference.name in locked for difference in wrong)
    wanted = f"all {len(locked)}, no other"
    checks.require("distributions", not wrong, f"{good} of {len(locked)} as locked", wanted)
    data = {"path": str(demand.path), "environment": str(root), "python": python, "distributions": len(installed)}
    data["summary"] = f"{demand.stack} adopted, Python {python}, {len(installed)} distributions"
    return checks, data

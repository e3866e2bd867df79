"""An environment that an image brings: nothing is installed, everything is compared with the lock."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.aerie.distributions.installed import environment_root, site_packages_of
from ansible.module_utils.aerie.environment import build, comparison, wheel_compatibility
from ansible.module_utils.aerie.shared.checks import Checks

REBUILD = "rebuild the image from the lock of the stack"


def judge(demand: build.Demand) -> tuple[Checks, dict[str, Any]]:
    """The checks, and the data of the section; empty where no environment is."""
    checks, root = Checks(), environment_root(demand.path)
    if not site_packages_of(root):
        remedy = "correct ml_env_path, or set ml_env_source: lock to build one"
        found = f"no Python environment at {demand.path}"
        checks.add("environment", "fail", found, "one that the image brings", remedy)
        return checks, {}
    has = comparison.installed(root, demand.vllm_distribution)
    python = build.python_version(str(root / "bin" / "python"))
    # Hashes are of wheels, and nobody can tell any more which wheel an image unpacked: versions are compared.
    wants = comparison.wanted(demand.lock, python, hashed=False)
    wrong = comparison.differences(wants, has, demand.allowed)
    for one in wrong:
        checks.add(f"distribution {one.name}", "fail", one.found, one.wanted, REBUILD)
    if demand.wheel:
        for one in wheel_compatibility.misfits(root, demand.wheel, build.versions(has), python):
            checks.add(f"vLLM build: {one.name}", "fail", one.found, one.wanted, "rebuild the image with that wheel")
    good = len(wants) - sum(one.name in wants for one in wrong)
    checks.require("distributions", not wrong, f"{good} of {len(wants)} as locked", f"all {len(wants)}, no other")
    data = {"path": str(demand.path), "environment": str(root), "python": python, "distributions": len(has)}
    data["summary"] = f"{demand.stack} adopted, Python {python}, {len(has)} distributions"
    return checks, data

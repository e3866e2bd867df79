"""Build a new environment from a lock, beside the one in use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.distributions import manifest
from ansible.module_utils.aerie.distributions.names import normalize
from ansible.module_utils.aerie.environment import comparison, uv, vllm_wheel, wheel_compatibility
from ansible.module_utils.aerie.environment.interpreter import chosen_python
from ansible.module_utils.aerie.environment.layout import remove
from ansible.module_utils.aerie.shared.digests import sha256_bytes
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from ansible.module_utils.aerie.environment.comparison import InstalledVersion, LockedVersion
    from ansible.module_utils.aerie.environment.demand import Demand
    from ansible.module_utils.aerie.environment.layout import Layout


def build(layout: Layout, demand: Demand) -> tuple[Path, dict[str, InstalledVersion]]:
    """A new environment from the lock, verified against it, and what it has installed.

    Removes it again when anything goes wrong. Raises `Refusal` or `OSError`.
    """
    base, version = chosen_python(demand)
    locked = comparison.locked_versions(demand.lock, version)
    variables, sources = _sources(layout, demand, locked)
    target = layout.new(sha256_bytes(demand.lock.encode()))
    try:
        uv.run(demand.uv, ["venv", "--quiet", "--no-project", "--python", base, str(target)], variables)
        (target / ".aerie").mkdir()
        lock_file = target / ".aerie" / "lock.txt"
        lock_file.write_text(demand.lock, encoding="utf-8")
        python = str(target / "bin" / "python")
        arguments = ["pip", "sync", "--quiet", "--python", python, "--require-hashes", "--only-binary", ":all:"]
        uv.run(demand.uv, [*arguments, *sources, str(lock_file)], variables)
        installed = comparison.installed_versions(target, demand.vllm_distribution)
        wrong = comparison.differences(locked, installed)
        if demand.wheel:
            versions = comparison.versions_of(installed)
            wrong += wheel_compatibility.misfits(target, demand.wheel, versions, version)
        if wrong:
            found = f"{len(wrong)} differences, the first: {wrong[0].name} is {wrong[0].found}"
            wanted = f"the distributions of the lock: {wrong[0].name} {wrong[0].wanted}"
            raise Refusal("build", f"what uv installed differs from the lock: {found}", wanted, uv.REMEDY)
        manifest.write(target, _manifest(demand, locked, installed, base))
    except BaseException:
        if target.exists():
            remove(target)
        raise
    return target, installed


def _manifest(
    demand: Demand, locked: dict[str, LockedVersion], installed: dict[str, InstalledVersion], base: str
) -> dict[str, Any]:
    """The manifest of an environment that was built from the Python `base`."""
    return {
        "stack": demand.stack,
        "lock_sha256": sha256_bytes(demand.lock.encode()),
        "distributions": {
            name: {"version": pin.version, "record": installed[name].record, "hashes": sorted(pin.hashes)}
            for name, pin in sorted(locked.items())
            if name in installed
        },
        "python": base,
    }


def _sources(layout: Layout, demand: Demand, locked: dict[str, LockedVersion]) -> tuple[dict[str, str], list[str]]:
    """The variables of uv, and its options about where distributions come from. Fetches uv and vLLM's wheel."""
    variables = uv.clean_variables(os.environ, demand.variables)
    options: list[str] = []
    if demand.bundle:
        variables = {name: value for name, value in variables.items() if name not in uv.SOURCES}
        options = ["--offline", "--no-index", "--find-links", str(demand.bundle / "wheels")]
        if demand.uv_sha256:
            uv.install(demand.bundle / "bin" / "uv", Path(demand.uv))
    elif demand.wheel:
        pinned = locked[normalize(demand.wheel.distribution)].version
        vllm_wheel.obtain(demand.wheel, demand.home / "wheels", pinned, variables)
        links = [variables.get("UV_FIND_LINKS", ""), str(demand.home / "wheels")]
        variables["UV_FIND_LINKS"] = ",".join(filter(None, links))
    # On another filesystem than its cache uv would copy 8 GB instead of linking, and say so on every run.
    variables["UV_CACHE_DIR"] = str(uv.cache_folder(variables, demand.home, layout.folder))
    variables["UV_NO_PROGRESS"] = "1"
    # A uv.toml of the host could name another source of wheels, or forbid wheels.
    variables["UV_NO_CONFIG"] = "1"
    return variables, options

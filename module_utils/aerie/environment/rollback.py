"""Go back to an environment that was kept beside the current one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.distributions import manifest
from ansible.module_utils.aerie.environment.demand import Demand
from ansible.module_utils.aerie.environment.in_use import require_unused
from ansible.module_utils.aerie.environment.layout import Layout
from ansible.module_utils.aerie.environment.verify import verify
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path

CHECK = "kept environment"
HOW = "choose one of them with -e rollback_environment=<name>; ml_env_keep says how many are kept"


def listing(layout: Layout, vllm_distribution: str) -> list[dict[str, Any]]:
    """The finished environments, the newest first: name, stack, version of vLLM, and whether it is the current one."""
    found = []
    for environment in layout.finished():
        recorded = manifest.read(environment)
        pins = recorded.get("distributions", {})
        version = pins.get(vllm_distribution, {}).get("version", "")
        current = environment.resolve() == layout.current()
        entry = {"name": environment.name, "stack": recorded.get("stack", ""), "vllm": version, "current": current}
        found.append(entry)
    return found


def choose(layout: Layout, name: str) -> Path:
    """The kept environment of a name, or the newest that is older than the current one. Raises `Refusal`."""
    current, finished = layout.current(), layout.finished()
    kept = ", ".join(environment.name for environment in finished if environment.resolve() != current) or "none"
    if name:
        named = [environment for environment in finished if environment.name == name]
        if not named:
            raise Refusal(CHECK, f"no environment {name}; kept are: {kept}", "one that is kept", HOW)
        return named[0]
    earlier = [environment for environment in finished if current is None or environment.name < current.name]
    if not earlier:
        found = f"none older than {current.name if current else 'nothing'}; kept are: {kept}"
        raise Refusal(CHECK, found, "an older environment", HOW)
    return earlier[0]


def go_back(path: Path, name: str, vllm_distribution: str, check_mode: bool) -> tuple[Path, bool]:
    """Point the link at a kept environment that still is what its own lock says; return it, and whether it is new.

    Raises `Refusal` or `OSError`; the link then leads where it led.
    """
    layout = Layout(path)
    if layout.stranger():
        found = f"{layout.stranger()} at {path}, not made by this role"
        raise Refusal(CHECK, found, "a link of ours", "see ml_env_source")
    chosen, before = choose(layout, name), layout.current()
    require_as_locked(chosen, vllm_distribution)
    if chosen.resolve() == before:
        return chosen, False
    require_unused(layout)
    if check_mode:
        return chosen, True
    with layout.held():
        layout.swap(chosen)
        try:
            require_as_locked(path.resolve(), vllm_distribution)
        except BaseException:
            if before:
                layout.swap(before)
            raise
    return chosen, True


def require_as_locked(environment: Path, vllm_distribution: str) -> None:
    """Raise `Refusal` for an environment that is no longer what was installed by its own lock."""
    text = (environment / ".aerie" / "lock.txt").read_text(encoding="utf-8")
    demand = Demand(environment, text, "", "", environment, "", vllm_distribution, python_versions=">=3.8")
    wrong = verify(environment, demand)[0]
    if wrong:
        found = f"{environment.name}: {len(wrong)} differences from its lock, {wrong[0].name} is {wrong[0].found}"
        raise Refusal(CHECK, found, wrong[0].wanted, "choose another one, or provision anew with the lock of that time")

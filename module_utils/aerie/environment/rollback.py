"""Going back to an environment that was kept beside the current one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.environment import build, comparison
from ansible.module_utils.aerie.environment.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

HOW = "choose one of them with -e rollback_environment=<name>; ml_env_keep says how many are kept"


class KeptError(Exception):
    """There is nothing to go back to; with what is wanted and what to do."""

    def __init__(self, found: str, wanted: str, remedy: str) -> None:
        super().__init__(found)
        self.found, self.wanted, self.remedy = found, wanted, remedy


def listing(layout: Layout, vllm_distribution: str) -> list[dict[str, Any]]:
    """The finished environments, the newest first: name, stack, version of vLLM, and whether it is the current one."""
    found = []
    for one in layout.finished():
        recorded = comparison.manifest(one)
        pins = recorded.get("distributions", {})
        version = pins.get(vllm_distribution, {}).get("version", "")
        current = one.resolve() == layout.current()
        found.append({"name": one.name, "stack": recorded.get("stack", ""), "vllm": version, "current": current})
    return found


def choose(layout: Layout, name: str) -> Path:
    """The kept environment of a name, or the newest that is older than the current one. Raises `KeptError`."""
    current, finished = layout.current(), layout.finished()
    kept = ", ".join(one.name for one in finished if one.resolve() != current) or "none"
    if name:
        named = [one for one in finished if one.name == name]
        if not named:
            raise KeptError(f"no environment {name}; kept are: {kept}", "one that is kept", HOW)
        return named[0]
    earlier = [one for one in finished if current is None or one.name < current.name]
    if not earlier:
        raise KeptError(f"none older than {current.name if current else 'nothing'}; kept are: {kept}", "one", HOW)
    return earlier[0]


def go_back(path: Path, name: str, vllm_distribution: str, check_mode: bool) -> tuple[Path, bool]:
    """Point the link at a kept environment, which must still be what its own lock says; it, and whether that is new.

    Raises `KeptError`, `BusyError`, `ToolError`, `LockError`, `BlockingIOError` or `OSError`; the link then leads where
    it led.
    """
    layout = Layout(path)
    if layout.stranger():
        raise KeptError(f"{layout.stranger()} at {path}, not made by this role", "a link of ours", "see ml_env_source")
    chosen, before = choose(layout, name), layout.current()
    verify(chosen, vllm_distribution)
    if chosen.resolve() == before:
        return chosen, False
    busy = build.jobs_in(layout)
    if busy:
        raise build.BusyError(f"{path} is in use by our job, pid {', '.join(map(str, busy))}")
    if check_mode:
        return chosen, True
    with layout.locked():
        layout.swap(chosen)
        try:
            verify(path.resolve(), vllm_distribution)
        except BaseException:
            if before:
                layout.swap(before)
            raise
    return chosen, True


def verify(environment: Path, vllm_distribution: str) -> None:
    """Refuse an environment that is no longer what was installed by its own lock. Raises `KeptError`."""
    text = (environment / ".aerie" / "lock.txt").read_text(encoding="utf-8")
    demand = build.Demand(environment, text, "", "", environment, "", vllm_distribution, python_versions=">=3.8")
    wrong = build.judge(environment, demand)[0]
    if wrong:
        first = wrong[0]
        found = f"{environment.name}: {len(wrong)} differences from its lock, {first.name} is {first.found}"
        raise KeptError(found, first.wanted, "choose another one, or provision anew with the lock of that time")

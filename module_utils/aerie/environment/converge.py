"""Bring an environment to what its lock says: leave it when it is so, else build a new one beside it and swap."""

from __future__ import annotations

import contextlib
import platform
import time
from typing import TYPE_CHECKING

from ansible.module_utils.aerie.distributions import manifest
from ansible.module_utils.aerie.distributions.names import normalize
from ansible.module_utils.aerie.environment import bundle, comparison
from ansible.module_utils.aerie.environment.build import build
from ansible.module_utils.aerie.environment.comparison import Difference, versions_of
from ansible.module_utils.aerie.environment.demand import Demand, Outcome
from ansible.module_utils.aerie.environment.hold import HeldRefusal
from ansible.module_utils.aerie.environment.in_use import require_unused
from ansible.module_utils.aerie.environment.interpreter import chosen_python, python_version, recorded_version
from ansible.module_utils.aerie.environment.layout import Layout, remove
from ansible.module_utils.aerie.environment.verify import verify
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.environment.comparison import InstalledVersion


def converge(demand: Demand, check_mode: bool) -> Outcome:
    """Verify the environment; unless it is what the lock says, build a new one and swap.

    Raises `Refusal` or `OSError`; the environment is then as it was.
    """
    layout, outcome, started = Layout(demand.path), Outcome(), time.monotonic()
    current = layout.current()
    if current is not None:
        outcome.why, locked, installed = verify(current, demand)
        outcome.before = outcome.after = versions_of(installed)
        outcome.environment = current
        if not outcome.why:
            outcome.python = python_version(str(current / "bin" / "python"))
            outcome.data = {"wanted": len(locked)}
            if not check_mode:
                tidy(layout, outcome)
            return _timed(outcome, started)
    else:
        outcome.why = [Difference("environment", layout.stranger() or "nothing there", demand.stack)]
    outcome.changed = True
    if current is not None and not demand.may_move:
        require_core(current, demand)
    if demand.bundle:
        bundle.require(demand.bundle, demand.lock, chosen_python(demand)[1], platform.machine(), demand.uv_sha256)
    require_unused(layout)
    if check_mode:
        _, outcome.python = chosen_python(demand)
        outcome.after = versions_of(comparison.locked_versions(demand.lock, outcome.python))
        outcome.data = {"wanted": len(outcome.after)}
        return _timed(outcome, started)
    _replace(layout, demand, current, outcome)
    return _timed(outcome, started)


def _replace(layout: Layout, demand: Demand, current: Path | None, outcome: Outcome) -> None:
    """Put an environment that is what the lock says in the place of the current one."""
    with layout.held():
        clean(layout, outcome)
        environment, installed = reusable(layout, demand, current) or build(layout, demand)
        if layout.stranger():
            outcome.notes.append(f"what was at {demand.path} is now {layout.set_aside()}")
        layout.swap(environment)
        removed = layout.prune(demand.keep)
    if removed:
        outcome.notes.append(f"removed old environments: {', '.join(removed)}")
    outcome.environment = environment
    outcome.after = versions_of(installed)
    outcome.python = recorded_version(environment)
    outcome.data = {"wanted": len(outcome.after)}


def require_core(current: Path, demand: Demand) -> None:
    """Refuse to move core distributions within one stack, but for vLLM where the inventory names its commit or wheel.

    Raises `Refusal`.
    """
    recorded = manifest.read(current)
    if recorded.get("stack") != demand.stack:
        return
    moves = comparison.core_moves(recorded, comparison.locked_versions(demand.lock, chosen_python(demand)[1]))
    if demand.wheel:
        vllm = f"{normalize(demand.wheel.distribution)} "
        moves = [move for move in moves if not move.startswith(vllm)]
    if moves:
        raise Refusal(
            "core versions", f"would move: {', '.join(moves)}", f"as the stack {demand.stack} had them here",
            "if the lock was renewed on purpose, set ml_env_may_move: true for one run; otherwise restore the lock",
        )  # fmt: skip


def clean(layout: Layout, outcome: Outcome) -> None:
    """Remove what interrupted builds left. The caller holds the layout."""
    for path in layout.unfinished():
        outcome.notes.append(f"removed {path.name}, which an interrupted build left")
        remove(path)


def tidy(layout: Layout, outcome: Outcome) -> None:
    """Clean up beside an environment that is as it should be, unless another run is building there."""
    if layout.unfinished():
        with contextlib.suppress(HeldRefusal), layout.held():
            clean(layout, outcome)


def reusable(layout: Layout, demand: Demand, current: Path | None) -> tuple[Path, dict[str, InstalledVersion]] | None:
    """A finished environment that already is what the lock says: after a rollback, or a crash before the swap."""
    for environment in layout.finished():
        if environment.resolve() != current:
            wrong, _, installed = verify(environment, demand)
            if not wrong:
                return environment, installed
    return None


def _timed(outcome: Outcome, started: float) -> Outcome:
    outcome.seconds = round(time.monotonic() - started, 2)
    return outcome

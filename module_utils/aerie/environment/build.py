"""Bring an environment to what its lock says: nothing when it is so, else a new one beside it and a swap."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping

from ansible.module_utils.aerie.distributions import pythons
from ansible.module_utils.aerie.distributions.names import normalize
from ansible.module_utils.aerie.distributions.versions import satisfies
from ansible.module_utils.aerie.environment import bundle, comparison, wheel_compatibility
from ansible.module_utils.aerie.environment import uv as tool
from ansible.module_utils.aerie.environment import vllm_wheel as wheel
from ansible.module_utils.aerie.environment.comparison import Difference, Has, Wanted
from ansible.module_utils.aerie.environment.layout import Layout, finish, remove
from ansible.module_utils.aerie.shared import processes

# Without `site` (-S): what is installed does not matter, and reading it takes longer than the rest.
PROBE = ["-I", "-S", "-c", "import platform; print(platform.python_version())"]


class BusyError(Exception):
    """A job of ours runs in the environment that would be replaced."""


class MoveError(Exception):
    """Core parts of the same stack would move, and nobody said that they may."""


@dataclass
class Demand:
    """What the inventory asks for."""

    path: Path
    lock: str
    stack: str
    python: str
    home: Path
    uv: str
    vllm_distribution: str
    python_versions: str = ">=3.10"
    keep: int = 2
    # Whether a renewed lock of the same stack may move torch and its like.
    may_move: bool = False
    replace: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    allowed: list[str] = field(default_factory=list)
    # A folder of the host with all that is to be installed, instead of the network.
    bundle: Path | None = None
    # Digest of the controller's uv, which a bundle's must be; empty where `uv` is the host's own.
    uv_sha256: str = ""
    # vLLM's own wheel, where that is not to be found by the lock alone.
    wheel: wheel.Source | None = None


@dataclass
class Outcome:
    """What was found and done. Versions by name before and after."""

    changed: bool = False
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    why: list[Difference] = field(default_factory=list)
    environment: Path | None = None
    python: str = ""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    data: dict[str, Any] = field(default_factory=dict)


def python_version(python: str) -> str:
    """`major.minor.patch` of an interpreter, by running it. Raises `ToolError`."""
    try:
        done = subprocess.run([python, *PROBE], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise tool.ToolError(f"{python} does not run: {error}") from error
    if done.returncode:
        raise tool.ToolError(f"{python} does not run: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()


def recorded_version(root: Path) -> str:
    """The version of an environment's Python as uv wrote it down: for one that was just built, or judged."""
    found = re.search(r"^version_info = (.+)$", (root / "pyvenv.cfg").read_text(encoding="utf-8"), re.MULTILINE)
    return found.group(1) if found else python_version(str(root / "bin" / "python"))


def judge(root: Path, demand: Demand) -> tuple[list[Difference], dict[str, Wanted], dict[str, Has]]:
    """Every way in which an environment is not what the lock says."""
    has = comparison.installed(root, demand.vllm_distribution)
    try:
        version = python_version(str(root / "bin" / "python"))
    except tool.ToolError as error:
        return [Difference("python", str(error), "a Python that runs")], {}, has
    wants = comparison.wanted(demand.lock, version)
    found = comparison.differences(wants, has, demand.allowed)
    found += comparison.tampered(root, comparison.manifest(root), wants, has)
    if not satisfies(version, demand.python_versions):
        found.append(Difference("python", version, demand.python_versions))
    elif demand.python and minor(version) != minor(python_version(demand.python)):
        found.append(Difference("python", version, f"the version of {demand.python}"))
    return found, wants, has


def minor(version: str) -> list[str]:
    """Major and minor: what compiled distributions depend on."""
    return version.split(".")[:2]


def chosen_python(demand: Demand) -> tuple[str, str]:
    """Path and version of the Python to build from. Raises `ToolError` with what was tried."""
    chosen, tried = pythons.find(demand.python, demand.python_versions, dict(os.environ))
    if chosen is None:
        raise tool.ToolError(f"no Python {demand.python_versions} for the environment: {pythons.describe(tried)}")
    return chosen.path, chosen.version


def versions(has: Mapping[str, Has]) -> dict[str, str]:
    """Only the versions."""
    return {name: one.version for name, one in has.items()}


def converge(demand: Demand, check_mode: bool) -> Outcome:
    """Look, and unless all is well build and swap.

    Raises `ToolError`, `LockError`, `BundleError`, `FetchError`, `MoveError`, `BusyError` or `OSError`; the
    environment is then as it was.
    """
    layout, outcome, started = Layout(demand.path), Outcome(), time.monotonic()
    current = layout.current()
    if current is not None:
        outcome.why, wants, has = judge(current, demand)
        outcome.before = outcome.after = versions(has)
        outcome.environment = current
        if not outcome.why:
            outcome.python = python_version(str(current / "bin" / "python"))
            outcome.data = {"wanted": len(wants)}
            if not check_mode:
                tidy(layout, outcome)
            return _timed(outcome, started)
    else:
        outcome.why = [Difference("environment", layout.stranger() or "nothing there", demand.stack)]
    outcome.changed = True
    if current is not None and not demand.may_move:
        hold_core(current, demand)
    if demand.bundle:
        bundle.require(demand.bundle, demand.lock, chosen_python(demand)[1], platform.machine(), demand.uv_sha256)
    busy = jobs_in(layout)
    if busy:
        raise BusyError(f"{demand.path} is in use by our job, pid {', '.join(map(str, busy))}")
    if check_mode:
        _, outcome.python = chosen_python(demand)
        wants = comparison.wanted(demand.lock, outcome.python)
        outcome.after = {name: one.version for name, one in wants.items()}
        outcome.data = {"wanted": len(wants)}
        return _timed(outcome, started)
    with layout.locked():
        clean(layout, outcome)
        ready, has = reusable(layout, demand, current) or build(layout, demand)
        if layout.stranger():
            outcome.notes.append(f"what stood at {demand.path} is now {layout.set_aside()}")
        layout.swap(ready)
        removed = layout.prune(demand.keep)
    if removed:
        outcome.notes.append(f"removed old environments: {', '.join(removed)}")
    outcome.environment = ready
    outcome.after = versions(has)
    outcome.python = recorded_version(ready)
    outcome.data = {"wanted": len(outcome.after)}
    return _timed(outcome, started)


def hold_core(current: Path, demand: Demand) -> None:
    """Refuse to move core parts within one stack; vLLM itself where its commit or its wheel is asked for by name."""
    recorded = comparison.manifest(current)
    if recorded.get("stack") != demand.stack:
        return
    moves = comparison.core_moves(recorded, comparison.wanted(demand.lock, chosen_python(demand)[1]))
    named = f"{normalize(demand.wheel.distribution)} " if demand.wheel else "\n"
    moves = [move for move in moves if not move.startswith(named)]
    if moves:
        raise MoveError(", ".join(moves))


def jobs_in(layout: Layout) -> list[int]:
    """Our jobs that run in the environment: they import and start workers through the link, also later."""
    roots = (f"{layout.path}/", f"{layout.folder}/")
    found = []
    for entry in processes.PROC.iterdir():
        if not entry.name.isdigit() or processes.marker_of(int(entry.name)) is None:
            continue
        with contextlib.suppress(OSError):  # it has just ended
            program = (entry / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
            if program.startswith(roots):
                found.append(int(entry.name))
    return sorted(found)


def _timed(outcome: Outcome, started: float) -> Outcome:
    outcome.seconds = round(time.monotonic() - started, 2)
    return outcome


def clean(layout: Layout, outcome: Outcome) -> None:
    """Remove what interrupted builds left. The caller holds the lock."""
    for one in layout.unfinished():
        outcome.notes.append(f"removed {one.name}, which an interrupted build left")
        remove(one)


def tidy(layout: Layout, outcome: Outcome) -> None:
    """Clean up beside an environment that is as it should be, unless another run is just building there."""
    if layout.unfinished():
        with contextlib.suppress(BlockingIOError), layout.locked():
            clean(layout, outcome)


def reusable(layout: Layout, demand: Demand, current: Path | None) -> tuple[Path, dict[str, Has]] | None:
    """A finished environment that already is what the lock says: after going back, or a crash before the swap."""
    for one in layout.finished():
        if one.resolve() != current:
            wrong, _, has = judge(one, demand)
            if not wrong:
                return one, has
    return None


def build(layout: Layout, demand: Demand) -> tuple[Path, dict[str, Has]]:
    """A new environment from the lock, verified against it. Removed again when anything goes wrong."""
    base, version = chosen_python(demand)
    wants = comparison.wanted(demand.lock, version)
    variables = tool.clean_environment(os.environ, demand.environment)
    sources: list[str] = []
    if demand.bundle:
        variables = {name: value for name, value in variables.items() if name not in tool.SOURCES}
        sources = ["--offline", "--no-index", "--find-links", str(demand.bundle / "wheels")]
        if demand.uv_sha256:
            tool.install(demand.bundle / "bin" / "uv", Path(demand.uv))
    elif demand.wheel:
        pinned = wants[normalize(demand.wheel.distribution)].version
        wheel.obtain(demand.wheel, demand.home / "wheels", pinned, variables)
        links = [variables.get("UV_FIND_LINKS", ""), str(demand.home / "wheels")]
        variables["UV_FIND_LINKS"] = ",".join(filter(None, links))
    variables["UV_CACHE_DIR"] = str(tool.cache_folder(variables, demand.home, layout.folder))
    # Without hard links to its cache uv would copy 8 GB and say so on every run.
    variables["UV_NO_PROGRESS"] = "1"
    # A uv.toml of the host could send the wheels to another folder, or forbid them.
    variables["UV_NO_CONFIG"] = "1"
    target = layout.new(hashlib.sha256(demand.lock.encode()).hexdigest())
    try:
        tool.run(demand.uv, ["venv", "--quiet", "--no-project", "--python", base, str(target)], variables)
        (target / ".aerie").mkdir()
        lock_file = target / ".aerie" / "lock.txt"
        lock_file.write_text(demand.lock, encoding="utf-8")
        python = str(target / "bin" / "python")
        arguments = ["pip", "sync", "--quiet", "--python", python, "--require-hashes", "--only-binary", ":all:"]
        tool.run(demand.uv, [*arguments, *sources, str(lock_file)], variables)
        has = comparison.installed(target, demand.vllm_distribution)
        wrong = comparison.differences(wants, has)
        if demand.wheel:
            wrong += wheel_compatibility.misfits(target, demand.wheel, versions(has), version)
        if wrong:
            first = wrong[0]
            raise tool.ToolError(
                f"what uv installed is not what the lock says, {len(wrong)} differences, the first: "
                f"{first.name} is {first.found}, wanted {first.wanted}"
            )
        finish(target, {**comparison.make_manifest(demand.lock, demand.stack, wants, has), "python": base})
    except BaseException:
        if target.exists():
            remove(target)
        raise
    return target, has

"""Audit an environment in one call: versions, patches, faults, files, contracts. Imports nothing of it."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

from ansible.module_utils.aerie.audit import contracts as contract
from ansible.module_utils.aerie.audit import recorded_files, versions
from ansible.module_utils.aerie.audit.child_process import ChildStep
from ansible.module_utils.aerie.distributions import installed, lock
from ansible.module_utils.aerie.distributions.metadata_folders import is_alias, metadata_folders
from ansible.module_utils.aerie.distributions.names import normalize
from ansible.module_utils.aerie.patching import engine
from ansible.module_utils.aerie.patching.request import AUDITED, Request
from ansible.module_utils.aerie.shared.checks import Checks
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ansible.module_utils.aerie.patching.series import Series


@dataclass
class Demand:
    """What an environment must meet."""

    environment: Path
    stack: str
    pins: list[lock.Pin]
    series: list[Series]
    faults: list[str]
    vllm_distribution: str
    allowed: list[str] = field(default_factory=list)


@dataclass
class AuditResult:
    """What the audit found: its checks, and data for the report. Every step adds to it."""

    checks: Checks = field(default_factory=Checks)
    data: dict[str, Any] = field(default_factory=dict)


def run(demand: Demand) -> AuditResult:
    """Audit one environment. Whatever its state, this adds checks and does not raise."""
    result = AuditResult()
    root = installed.environment_root(demand.environment)
    sites = installed.site_packages_of(root)
    result.data = {"environment": str(demand.environment), "stack": demand.stack, "seconds": {}}
    if not sites:
        result.checks.add(
            "environment", "fail", f"no Python environment at {demand.environment}", "an environment to audit",
            "make the environment first (tag provision)",
        )  # fmt: skip
        return result
    # Reading 4,000 files takes about as long as parsing 30 modules: each gets a process.
    contracts = ChildStep(lambda: _apart(demand, sites))
    for name, step in _steps(demand, root, sites, result):
        _take(name, step, result)
    _take("contracts", lambda: _merge(contracts.result(), result), result)
    counts = [
        f"{result.data[what]:,} {what}" for what in ("distributions", "files", "contracts") if what in result.data
    ]
    result.data["summary"] = ", ".join(counts)
    return result


def _take(name: str, step: Callable[[], None], result: AuditResult) -> None:
    started = time.monotonic()
    try:
        step()
    except Refusal as refusal:
        result.checks.add(name, "fail", refusal.found, refusal.wanted, refusal.remedy, refusal.file)
    except (OSError, ValueError) as error:
        remedy = "mend what the message names, then verify again"
        result.checks.add(name, "fail", f"{type(error).__name__}: {error}", "something that can be audited", remedy)
    result.data["seconds"].setdefault(name, round(time.monotonic() - started, 3))


def _apart(demand: Demand, sites: list[Path]) -> dict[str, Any]:
    # Syntax trees are many objects that all live to the end: garbage collection would take a third of the time.
    gc.disable()
    part = AuditResult(data={"seconds": {}})
    _take("contracts", lambda: _contracts(demand, sites, part), part)
    return {"checks": part.checks.as_list(), "data": part.data}


def _merge(part: dict[str, Any], result: AuditResult) -> None:
    for entry in part["checks"]:
        result.checks.add(**entry)
    result.data["seconds"].update(part["data"].pop("seconds"))
    result.data.update(part["data"])


def _steps(demand: Demand, root: Path, sites: list[Path], result: AuditResult) -> Iterator[tuple[str, Any]]:
    yield "versions", lambda: _versions(demand, root, sites, result)
    yield "patches", lambda: _patches(demand, result)
    yield "faults", lambda: _faults(demand, result)
    yield "files", lambda: _files(demand, root, result)


def _versions(demand: Demand, root: Path, sites: list[Path], result: AuditResult) -> None:
    python = full_version(root)
    result.data["python"] = python
    wanted = lock.applying(demand.pins, lock.marker_variables(python))
    found = metadata_folders(sites)
    result.data["distributions"] = sum(not is_alias(folder, demand.vllm_distribution) for folder in found)
    result.data["versions"] = versions.check(result.checks, found, wanted, demand.vllm_distribution, demand.allowed)


def full_version(root: Path) -> str:
    """The ``major.minor.patch`` that ``pyvenv.cfg`` names. Raises ``ValueError`` when it names none."""
    for line in (root / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition("=")
        if key.strip() in ("version_info", "version"):
            return ".".join(value.strip().split(".")[:3])
    raise ValueError(f"{root}/pyvenv.cfg names no Python version")


def _patches(demand: Demand, result: AuditResult) -> None:
    if not demand.series:
        result.checks.add("patch series", "n/a", "the stack names no series", "nothing to patch")
        return
    audited = engine.run(Request(demand.environment, demand.series, AUDITED))
    for entry in audited.checks.as_list():
        result.checks.add(**entry)
    result.data["patches"] = audited.data.get("patches", [])
    result.data["drift"] = audited.drift


def _faults(demand: Demand, result: AuditResult) -> None:
    """Check that some patch of the series fixes each fault that these versions have."""
    mended = {str(fault) for series in demand.series for patch in series.patches for fault in patch.faults}
    names = ", ".join(series.name for series in demand.series) or "(no series)"
    lacking = [fault for fault in demand.faults if fault not in mended]
    for fault in lacking:
        result.checks.add(
            f"fault {fault} is mended", "fail",
            f"stack {demand.stack} needs fault {fault} mended, no patch of series {names} does",
            "a patch that mends it",
            f"add the patch to series {names} again, or drop fault {fault} from stacks/{demand.stack}.yml if these "
            "versions do not have it",
        )  # fmt: skip
    if demand.faults and not lacking:
        result.checks.add("faults of the stack", "pass", f"all {len(demand.faults)} mended", "each mended by a patch")


def _files(demand: Demand, root: Path, result: AuditResult) -> None:
    series_files = {path for series in demand.series for path in series.files}
    series_files |= {module.target for series in demand.series for module in series.modules}
    patched = [series.distribution for series in demand.series]
    files = 0
    whole = dict.fromkeys([*patched, normalize(demand.vllm_distribution)], "")
    for name, only in {**whole, "torch": ".py"}.items():
        found = installed.find(root, name)
        if found is None:
            result.checks.add(
                f"RECORD of {name}", "fail", "not installed", "installed", "make the environment (tag provision)"
            )
            continue
        files += recorded_files.check(result.checks, found, series_files, only, with_strays=name != "torch")
    result.data["files"] = files


def _contracts(demand: Demand, sites: list[Path], result: AuditResult) -> None:
    if demand.series:
        result.data["contracts"] = contract.check(result.checks, sites[0], demand.series)

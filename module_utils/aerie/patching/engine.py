"""One call for one environment: observe, fold, decide; then change all distributions or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Sequence

from ansible.module_utils.aerie.distributions import installed, written
from ansible.module_utils.aerie.environment.hold import environment_hold
from ansible.module_utils.aerie.patching import commit, refusals, report, transaction
from ansible.module_utils.aerie.patching.decide import Decision, Goal, decide
from ansible.module_utils.aerie.patching.observe import Missing, observe
from ansible.module_utils.aerie.patching.request import ABSENT, AUDITED, Request, Result
from ansible.module_utils.aerie.patching.syntax import syntax_faults
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.distributions.written import Memories
    from ansible.module_utils.aerie.patching.series import Series
    from ansible.module_utils.aerie.shared.checks import Check


def run(request: Request) -> Result:
    """Carry out ``request``. Whatever the state of the host, this returns checks and does not raise."""
    root = installed.environment_root(request.environment)
    try:
        if not installed.site_packages_of(root):
            return report.no_environment(request)
        if request.check_mode or request.state == AUDITED:
            return _run(request, root, write=False)
        return _run_held(request, root)
    except (Refusal, OSError) as error:
        return report.refused(request, (), error)


def _run_held(request: Request, root: Path) -> Result:
    try:
        with environment_hold(root, request.hold_wait_s):
            return _run(request, root, write=True)
    except OSError as error:
        if error.errno not in report.DENIED:
            raise
        # A file system that cannot be written allows no hold. A host that is in order passes all the same.
        result = _run(request, root, write=False)
        if result.changed:
            raise
        return result


def _run(request: Request, root: Path, write: bool) -> Result:
    recorded = written.read(root)
    wanted = _series_by_distribution(request, recorded)
    if not wanted:
        if write and recorded.readable:
            transaction.tidy(root, recorded)
        return report.no_series(request, recorded, str(written.file_of(root)))
    rollback = request.state == ABSENT
    observations = [observe(root, name, series, recorded.of(name), rollback) for name, series in wanted.items()]
    missing = [observation for observation in observations if isinstance(observation, Missing)]
    goal = Goal(rollback, request.restore)
    decisions = [decide(observation, goal) for observation in observations if not isinstance(observation, Missing)]
    try:
        refused = _refusals(request, root, decisions)
        done = write and not refused and not report.blocks(request, missing)
        if done:
            done = _carry_out(root, recorded, decisions, missing)
        return report.report(request, decisions, missing, refused, done)
    except commit.NotPutBackError as error:
        return report.not_put_back(request, decisions, missing, error)
    except (Refusal, OSError) as error:
        return report.refused(request, missing, error)


def _carry_out(root: Path, recorded: Memories, decisions: Sequence[Decision], missing: Sequence[Missing]) -> bool:
    """Carry out the decisions; False on a host that is in order and cannot be written to."""
    try:
        transaction.carry_out(root, recorded, decisions, [distribution.name for distribution in missing])
    except OSError as error:
        in_order = not missing and not any(decision.changes or decision.stale_bytecode for decision in decisions)
        if in_order and error.errno in report.DENIED:
            return False
        raise
    return True


def _series_by_distribution(request: Request, recorded: Memories) -> Mapping[str, Sequence[Series]]:
    """The series of each distribution; for a rollback without series, every distribution that is recorded."""
    wanted: dict[str, list[Series]] = {}
    for series in request.series:
        wanted.setdefault(series.distribution, []).append(series)
    if request.state == ABSENT and not wanted:
        return {name: [] for name in recorded.by_distribution}
    return wanted


def _refusals(request: Request, root: Path, decisions: Sequence[Decision]) -> list[Check]:
    """Why nothing may be written. Raises ``Refusal`` for a folder that cannot be written."""
    refused = [check for decision in decisions for check in decision.refusals]
    if refused or request.state == AUDITED:
        return refused
    changes = [change for decision in decisions for change in decision.changes]
    refused = [refusals.does_not_compile(path, error) for path, error in syntax_faults(root, changes)]
    commit.check_places(root, changes)
    return refused

"""One call for one environment: plan all distributions, then change all of them or none."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

from ansible.module_utils.aerie.distributions import installed
from ansible.module_utils.aerie.distributions.written import Memory, Written
from ansible.module_utils.aerie.environment.hold import LockedError, environment_lock
from ansible.module_utils.aerie.patching import commit, report
from ansible.module_utils.aerie.patching import decide as planning
from ansible.module_utils.aerie.patching.pristine_copies import Store
from ansible.module_utils.aerie.patching.refusals import Problem
from ansible.module_utils.aerie.patching.request import ABSENT, AUDITED, PRESENT, Request, Result
from ansible.module_utils.aerie.patching.syntax import syntax_faults

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.patching.decide import DistPlan
    from ansible.module_utils.aerie.patching.series import Series


_DENIED = (errno.EROFS, errno.EACCES, errno.EPERM)


def run(request: Request) -> Result:
    """Carry out ``request``. Never raises for what a host may look like: that is a failed check."""
    result = Result()
    root = installed.environment_root(request.environment)
    result.data = {"environment": str(request.environment), "state": request.state, "distributions": [], "patches": []}
    result.data["files"] = []
    try:
        if not installed.site_packages_of(root):
            _no_environment(request, result)
        elif request.check_mode or request.state == AUDITED:
            _work(request, root, result, write=False)
        else:
            _work_locked(request, root, result)
    except commit.NotPutBackError as error:
        result.changed = True
        result.checks.add(
            "write", "fail", error, "all files changed, or none", "run again: digests tell what is left to do"
        )
    except (installed.UnfitEnvironmentError, LockedError, commit.CannotWriteError, OSError) as error:
        _refuse(result, error)
    return result


def _refuse(result: Result, error: Exception) -> None:
    remedy = getattr(error, "remedy", "")
    name = "environment"
    if isinstance(error, LockedError):
        name, remedy = "lock", "wait for the other run to end, then run again"
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        name, remedy = "disk space", "free some space on the file system of the environment, then run again"
    elif isinstance(error, commit.CannotWriteError) or getattr(error, "errno", None) in _DENIED:
        name, remedy = "write", "make the environment writable for the user of this run, then run again"
    elif isinstance(error, OSError):
        name, remedy = "file system", "look at the file that is named, then run again"
    result.changed = False
    result.diffs = []
    result.checks.add(name, "fail", f"{error}; nothing was changed", "an environment that can be patched", remedy)


def _no_environment(request: Request, result: Result) -> None:
    """Without an environment nothing can be read: check mode foretells, everything else refuses."""
    found = f"no Python environment at {request.environment}"
    if request.state == ABSENT:
        result.checks.add("environment", "warn", found, "an environment without patches", "look at the path")
        return
    if request.state == AUDITED or not request.check_mode:
        remedy = "make the environment first (playbooks/provision.yml)"
        result.checks.add("environment", "fail", found, "an environment to patch", remedy)
        return
    result.checks.add("environment", "warn", found + " yet", "an environment to patch")
    _foretell(request.series, result)


def _foretell(series: list[Series], result: Result) -> None:
    result.changed = True
    for one in series:
        for patch in one.patches:
            entry = planning.PatchState(one.name, patch, "would apply", f"{one.distribution} is not installed yet")
            result.data["patches"].append(report.patch_data(entry))
            result.checks.add(f"patch {patch.id}", "pass", f"would apply: {entry.note}", "applied")


def _work_locked(request: Request, root: Path, result: Result) -> None:
    try:
        with environment_lock(root, request.lock_wait_s):
            _work(request, root, result, write=True)
    except OSError as error:
        if error.errno not in _DENIED or len(result.checks):
            raise
        # No lock can be taken where nothing can be written; a host that is in order may still say so.
        _work(request, root, result, write=False)
        if result.changed:
            raise


def _groups(request: Request, store: Store) -> dict[str, list[Series]]:
    groups: dict[str, list[Series]] = {}
    for one in request.series:
        groups.setdefault(one.distribution, []).append(one)
    if request.state == ABSENT and not groups:
        return {name: [] for name in store.memories}
    return groups


def _work(request: Request, root: Path, result: Result, write: bool) -> None:
    store = Store(root)
    absent = request.state == ABSENT
    plans = [
        planning.make(root, name, series, store, absent, request.restore)
        for name, series in _groups(request, store).items()
    ]
    if not plans and store.garbled:
        remedy = "name the series that were applied: what they made is known by its digests, and restored from them"
        result.checks.add("record", "fail", f"{store.path}/state.json cannot be read", "what was patched", remedy)
        return
    if not plans:
        if write and store.path.is_dir():
            # Copies of a run that died before it recorded or changed anything.
            commit.clear_stages(root, set())
            store.save()
        result.checks.add("series", "n/a" if absent else "fail", "no series given, and none recorded", "a series")
        return
    for plan in plans:
        if plan.distribution is None:
            _not_installed(request, plan, result)
    changes = [change for plan in plans for change in plan.changes]
    problems = [problem for plan in plans for problem in plan.problems]
    if not problems and request.state != AUDITED:
        problems = [_syntax_problem(*fault) for fault in syntax_faults(root, changes)]
        commit.check_places(root, changes)
    blocked = bool(problems or result.checks.failed)
    stale = [copy for plan in plans for copy in plan.stale_bytecode]
    if request.state != AUDITED and not blocked:
        result.changed = result.changed or bool(changes or stale)
        result.diffs = report.diffs(plans)
    if write and not blocked:
        _apply(root, store, plans, changes, stale)
    report.report(request, plans, problems, result, done=write and not blocked)


def _not_installed(request: Request, plan: DistPlan, result: Result) -> None:
    found = f"{plan.name} is not installed"
    if request.state == ABSENT:
        result.checks.add(f"distribution {plan.name}", "n/a", found, "no patch in it")
    elif request.check_mode and request.state == PRESENT:
        result.checks.add(f"distribution {plan.name}", "warn", found + " yet", "the distribution to patch")
        _foretell(plan.series, result)
    else:
        remedy = "provision the environment first (playbooks/provision.yml)"
        result.checks.add(f"distribution {plan.name}", "fail", found, "the distribution to patch", remedy)


def _syntax_problem(path: str, text: str) -> Problem:
    remedy = "mend the patch that makes this file; nothing was changed"
    return Problem(f"file {path}", f"the patched file does not compile: {text}", "Python", remedy, path)


def _apply(root: Path, store: Store, plans: list[DistPlan], changes: list[commit.Change], stale: list[Path]) -> None:
    store.prepare()
    commit.clear_stages(root, {plan.distribution.site_packages for plan in plans if plan.distribution})
    before = dict(store.memories)
    try:
        for plan in plans:
            _remember(store, plan)
        if changes:
            # The digests to come are on record before any file has them: a crash leaves nothing unknown.
            for plan in plans:
                old = before.get(plan.name, Memory())
                store.memories[plan.name] = _both(old, plan.memory_after)
            store.save(prune=False)
            commit.commit(root, changes)
    except commit.NotPutBackError:
        raise  # with the digests of both on record, so that the next run knows all files as ours
    except BaseException:
        store.memories = before
        with contextlib.suppress(OSError):
            store.save()
        raise
    for copy in stale:
        copy.unlink(missing_ok=True)
    for plan in plans:
        for file in plan.files:
            if file.target is None and plan.distribution:
                commit.remove_empty_parents(plan.distribution.site_packages, file.path)
    for plan in plans:
        store.memories[plan.name] = plan.memory_after
    store.save()


def _remember(store: Store, plan: DistPlan) -> None:
    for file in plan.files:
        if file.pristine is not None and file.target_digest != file.pristine_digest:
            store.keep(file.pristine)
    if plan.memory_after.record:
        store.keep(plan.record_pristine)


def _both(old: Memory, new: Memory) -> Memory:
    """A memory in which the digests of both count as ours."""
    files, record = dict(old.files), old.record
    for path, written in new.files.items():
        earlier = old.files.get(path)
        same = earlier is not None and earlier.pristine == written.pristine
        digests = [*earlier.digests, *written.digests] if same and earlier else written.digests
        files[path] = Written(written.pristine, tuple(dict.fromkeys(digests)))
    if new.record:
        same = old.record is not None and old.record.pristine == new.record.pristine
        digests = [*old.record.digests, *new.record.digests] if same and old.record else new.record.digests
        record = Written(new.record.pristine, tuple(dict.fromkeys(digests)))
    return Memory(files, record, new.version)

"""The report of a run: checks, data, and differences to look at."""

from __future__ import annotations

import difflib
import errno
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from ansible.module_utils.aerie.patching import fold
from ansible.module_utils.aerie.patching.refusals import LOOK, PATCHABLE, WRITABLE
from ansible.module_utils.aerie.patching.request import ABSENT, AUDITED, PRESENT, Request, Result
from ansible.module_utils.aerie.patching.states import APPLIED, DRIFTED, NOT_APPLIED, OK, WOULD_APPLY, PatchState
from ansible.module_utils.aerie.shared.checks import Check, Checks
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from ansible.module_utils.aerie.distributions.written import Memories
    from ansible.module_utils.aerie.patching.decide import Decision
    from ansible.module_utils.aerie.patching.observe import Missing
    from ansible.module_utils.aerie.patching.series import Series
    from ansible.module_utils.aerie.patching.states import FileState

APPLY = "apply the series (playbooks/patch.yml)"
DENIED = (errno.EROFS, errno.EACCES, errno.EPERM)
_LONGEST_DIFF = 60


def _result(
    request: Request,
    checks: Sequence[Check],
    patches: Sequence[dict[str, Any]] = (),
    changed: bool = False,
    diffs: Sequence[dict[str, str]] = (),
) -> Result:
    """A result of checks and patches, without distributions and files."""
    collected = Checks()
    for check in checks:
        collected.append(check)
    data = {"environment": str(request.environment), "state": request.state}
    return Result(changed, collected, {**data, "distributions": [], "patches": list(patches), "files": []}, list(diffs))


# Nothing to decide about


def no_environment(request: Request) -> Result:
    """There is no environment: check mode says what a run would do, everything else refuses."""
    found = f"no Python environment at {request.environment}"
    if request.state == ABSENT:
        check = Check("environment", "warn", found, "an environment without patches", "look at the path")
        return _result(request, [check])
    if request.state == AUDITED or not request.check_mode:
        remedy = "make the environment first (playbooks/provision.yml)"
        return _result(request, [Check("environment", "fail", found, "an environment to patch", remedy)])
    check = Check("environment", "warn", found + " yet", "an environment to patch")
    expected = _expected(request.series)
    return _result(request, [check, *_expected_checks(expected)], _patches_data(expected), changed=True)


def no_series(request: Request, recorded: Memories, record_path: str) -> Result:
    """The request names no series, and no patched distribution is recorded."""
    if not recorded.readable:
        remedy = "name the series that were applied: what they made is known by its digests, and restored from them"
        found = f"{record_path} cannot be read"
        return _result(request, [Check("record", "fail", found, "what was patched", remedy)])
    status = "n/a" if request.state == ABSENT else "fail"
    return _result(request, [Check("series", status, "no series given, and none recorded", "a series")])


def refused(request: Request, missing: Sequence[Missing], error: Exception) -> Result:
    """The run ended early, with nothing changed."""
    refusal = _as_refusal(error)
    check = Check(refusal.name, "fail", f"{refusal.found}; nothing was changed", refusal.wanted, refusal.remedy)
    checks, expected = _missing_checks(request, missing)
    return _result(request, [*checks, check], _patches_data(expected))


def not_put_back(
    request: Request, decisions: Sequence[Decision], missing: Sequence[Missing], error: Exception
) -> Result:
    """The run ended early, with some files new and some old."""
    wanted, remedy = "all files changed, or none", "run again: digests tell what is left to do"
    checks, expected = _missing_checks(request, missing)
    checks.append(Check("write", "fail", str(error), wanted, remedy))
    return _result(request, checks, _patches_data(expected), changed=True, diffs=_diffs(decisions))


def _as_refusal(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    code = getattr(error, "errno", None)
    if code in (errno.ENOSPC, errno.EDQUOT):
        remedy = "free some space on the file system of the environment, then run again"
        return Refusal("disk space", error, PATCHABLE, remedy)
    return (
        Refusal("write", error, PATCHABLE, WRITABLE)
        if code in DENIED
        else Refusal("file system", error, PATCHABLE, LOOK)
    )


# Distributions that are not installed


def _missing_checks(request: Request, missing: Sequence[Missing]) -> tuple[list[Check], list[PatchState]]:
    checks, expected = [], []
    for distribution in missing:
        checks.append(_missing_check(request, distribution))
        if request.check_mode and request.state == PRESENT:
            patches = _expected(distribution.series)
            checks += _expected_checks(patches)
            expected += patches
    return checks, expected


def _missing_check(request: Request, missing: Missing) -> Check:
    name, found = f"distribution {missing.name}", f"{missing.name} is not installed"
    if request.state == ABSENT:
        return Check(name, "n/a", found, "no patch in it")
    if request.check_mode and request.state == PRESENT:
        return Check(name, "warn", found + " yet", "the distribution to patch")
    remedy = "provision the environment first (playbooks/provision.yml)"
    return Check(name, "fail", found, "the distribution to patch", remedy)


def _expected(all_series: Sequence[Series]) -> list[PatchState]:
    """The patches of series whose distribution will be installed before they are applied."""
    return [
        PatchState(series.name, patch, WOULD_APPLY, f"{series.distribution} is not installed yet")
        for series in all_series
        for patch in series.patches
    ]


def _expected_checks(expected: Sequence[PatchState]) -> list[Check]:
    return [Check(f"patch {state.patch.id}", "pass", f"would apply: {state.note}", "applied") for state in expected]


def blocks(request: Request, missing: Sequence[Missing]) -> bool:
    """Whether a distribution that is not installed keeps all others from being changed."""
    return any(_missing_check(request, distribution).status == "fail" for distribution in missing)


# Distributions that are decided about


def report(
    request: Request, decisions: Sequence[Decision], missing: Sequence[Missing], refusals: Sequence[Check], done: bool
) -> Result:
    """The result of a run; ``done`` says that the decisions were carried out."""
    checks, expected = _missing_checks(request, missing)
    may_write = request.state != AUDITED and not refusals and not blocks(request, missing)
    would_change = may_write and any(decision.changes or decision.stale_bytecode for decision in decisions)
    refused_names = {check.name for check in refusals}
    checks += refusals
    states = _patches_data(expected)
    for decision in decisions:
        patches = [_final(request, state, bool(refusals), done) for state in decision.patches]
        states += _patches_data(patches)
        checks += _decision_checks(request, decision, patches, refused_names, done)
    result = _result(request, checks, states, bool(expected) or would_change, _diffs(decisions) if may_write else ())
    result.data["distributions"] = [_distribution_data(decision) for decision in decisions]
    files = [file for decision in decisions for file in decision.files]
    result.data["files"] = [_file_data(file) for file in files]
    drift = "".join(_unified(file) + "\n" for file in files if file.state == DRIFTED and refusals)
    return Result(result.changed, result.checks, result.data, result.diffs, drift)


def _decision_checks(
    request: Request, decision: Decision, patches: Sequence[PatchState], refused_names: set[str], done: bool
) -> Iterator[Check]:
    """All checks of one distribution but the refusals, whose names are ``refused_names``."""
    for state in patches:
        if f"patch {state.patch.id}" not in refused_names:
            yield _patch_check(request, state)
        if request.state == AUDITED:
            yield from _probe_checks(decision, state)
    if request.state == AUDITED:
        for file in decision.files:
            if f"file {file.path}" not in refused_names:
                yield _file_check(file)
    if not patches:
        found = f"{len(decision.changes)} files {'restored' if done else 'to restore'}"
        name = f"distribution {decision.observation.name}"
        yield Check(name, "pass", found if decision.changes else "no patch in it", "no patch in it")


def _final(request: Request, state: PatchState, is_refused: bool, done: bool) -> PatchState:
    """The state of a patch after the run."""
    final = state.state
    if done and state.state in (WOULD_APPLY, APPLIED, DRIFTED):
        final = NOT_APPLIED if request.state == ABSENT else APPLIED
    elif request.restore and state.state == DRIFTED and not is_refused:
        final = WOULD_APPLY
    return PatchState(state.series, state.patch, final, state.note)


def _required(
    name: str, holds: bool, found: str, wanted: str, remedy: str, file: str | None = None, line: int | None = None
) -> Check:
    return Check(name, "pass" if holds else "fail", found, wanted, "" if holds else remedy, file, line)


def _patch_check(request: Request, state: PatchState) -> Check:
    name, found = f"patch {state.patch.id}", state.state + (f": {state.note}" if state.note else "")
    wanted = NOT_APPLIED if request.state == ABSENT else APPLIED
    good = {APPLIED, WOULD_APPLY, NOT_APPLIED, fold.OBSOLETE}
    if request.state == AUDITED:
        good -= {WOULD_APPLY}
    if state.state == fold.OBSOLETE:
        found += f" (kept: {state.patch.keep_when_obsolete})"
    if request.state == ABSENT and state.state not in good:
        # A rollback does not depend on how a patch would fit; drifted files have checks of their own.
        return Check(name, "n/a", found, wanted)
    return _required(name, state.state in good, found, wanted, APPLY if request.state == AUDITED else "")


def _probe_checks(decision: Decision, state: PatchState) -> Iterator[Check]:
    current = {file.path: file.current for file in decision.files}
    for grep in state.patch.greps:
        lines = fold.grep_lines(current.get(grep.file), grep)
        yield _required(
            f"probe {state.patch.id}: {grep.pattern}",
            fold.grep_holds(current.get(grep.file), grep),
            f"found at line {', '.join(map(str, lines))}" if lines else "not found",
            "not found" if grep.absent else "found",
            APPLY,
            grep.file,
            lines[0] if lines else None,
        )


def _file_check(file: FileState) -> Check:
    found = "no file" if file.current is None else f"sha256 {file.current_digest}"
    wanted = "no file" if file.target is None else f"sha256 {file.target_digest}"
    return _required(f"file {file.path}", file.state == OK, f"{found} ({file.state})", wanted, APPLY, file.path)


# Data


def _patches_data(states: Sequence[PatchState]) -> list[dict[str, Any]]:
    return [
        {
            "id": state.patch.id,
            "series": state.series,
            "title": state.patch.title,
            "state": state.state,
            "note": state.note,
            "files": state.patch.paths,
            "faults": list(state.patch.faults),
        }
        for state in states
    ]


def _distribution_data(decision: Decision) -> dict[str, str]:
    distribution = decision.observation.distribution
    return {
        "name": decision.observation.name,
        "version": distribution.version,
        "site_packages": str(distribution.site_packages),
    }


def _file_data(file: FileState) -> dict[str, Any]:
    return {
        "path": file.path,
        "state": file.state,
        "pristine": file.pristine_digest,
        "current": file.current_digest,
        "wanted": file.target_digest,
        "diff": _unified(file) if file.state == DRIFTED else "",
    }


# Differences


def _text(content: bytes | None) -> str:
    return "" if content is None else content.decode("utf-8", errors="replace")


def _diffs(decisions: Sequence[Decision]) -> list[dict[str, str]]:
    """Every change in the form that Ansible shows as a diff."""
    shown = []
    for decision in decisions:
        current = {file.path: file.current for file in decision.files}
        for change in decision.changes:
            before = current.get(change.path, decision.observation.record_content)
            shown.append(
                {
                    "before": _text(before),
                    "after": _text(change.content),
                    "before_header": change.path if before is not None else "/dev/null",
                    "after_header": change.path if change.content is not None else "/dev/null",
                }
            )
    return shown


def _unified(file: FileState) -> str:
    names = (f"{file.path} (wanted)", f"{file.path} (on disk)")
    wanted, found = (_text(content).splitlines() for content in (file.target, file.current))
    lines = list(difflib.unified_diff(wanted, found, *names, n=1, lineterm=""))
    if len(lines) > _LONGEST_DIFF:
        lines = [*lines[:_LONGEST_DIFF], f"... {len(lines) - _LONGEST_DIFF} lines more"]
    return "\n".join(lines)

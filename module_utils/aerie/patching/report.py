"""What a run tells: checks, data, and differences to look at."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.patching import decide as planning
from ansible.module_utils.aerie.patching import fold
from ansible.module_utils.aerie.patching.request import ABSENT, AUDITED, Request, Result

if TYPE_CHECKING:
    from ansible.module_utils.aerie.patching.decide import DistPlan
    from ansible.module_utils.aerie.patching.refusals import Problem

_LONGEST_DIFF = 60


def _text(content: bytes | None) -> str:
    return "" if content is None else content.decode("utf-8", errors="replace")


def diffs(plans: list[DistPlan]) -> list[dict[str, str]]:
    """Every planned change in the form that Ansible shows as a diff."""
    shown = []
    for plan in plans:
        before = {file.path: file.current for file in plan.files}
        for change in plan.changes:
            old = before.get(change.path, plan.record_before)
            shown.append(
                {
                    "before": _text(old),
                    "after": _text(change.content),
                    "before_header": change.path if old is not None else "/dev/null",
                    "after_header": change.path if change.content is not None else "/dev/null",
                }
            )
    return shown


def _unified(file: planning.FileState) -> str:
    names = (f"{file.path} (wanted)", f"{file.path} (on disk)")
    wanted, found = (_text(content).splitlines() for content in (file.target, file.current))
    lines = list(difflib.unified_diff(wanted, found, *names, n=1, lineterm=""))
    if len(lines) > _LONGEST_DIFF:
        lines = [*lines[:_LONGEST_DIFF], f"... {len(lines) - _LONGEST_DIFF} lines more"]
    return "\n".join(lines)


def report(request: Request, plans: list[DistPlan], problems: list[Problem], result: Result, done: bool) -> None:
    """Add checks and data to ``result``; ``done`` says that the plan was carried out."""
    for problem in problems:
        result.checks.add(problem.name, "fail", problem.found, problem.wanted, problem.remedy, problem.file)
    told = {problem.name for problem in problems}
    for plan in plans:
        if plan.distribution is None:
            continue
        entry = {"name": plan.name, "version": plan.distribution.version}
        entry["site_packages"] = str(plan.distribution.site_packages)
        result.data["distributions"].append(entry)
        _report_patches(request, plan, told, result, done)
        for file in plan.files:
            result.data["files"].append(_file_data(file))
            if file.state == planning.DRIFTED and problems:
                result.drift += _unified(file) + "\n"
            if request.state == AUDITED and f"file {file.path}" not in told:
                _audit_file(file, result)
        if not plan.patches:
            verb = "restored" if done else "to restore"
            found = f"{len(plan.changes)} files {verb}" if plan.changes else "no patch in it"
            result.checks.add(f"distribution {plan.name}", "pass", found, "no patch in it")


def _report_patches(request: Request, plan: DistPlan, told: set[str], result: Result, done: bool) -> None:
    for state in plan.patches:
        if done and state.state in ("would apply", "applied", "drifted"):
            state.state = "not applied" if request.state == ABSENT else "applied"
        elif request.restore and state.state == "drifted" and not told:
            state.state = "would apply"
        result.data["patches"].append(patch_data(state))
        if f"patch {state.patch.id}" not in told:
            _check_patch(request, state, result)
        if request.state == AUDITED:
            _check_probes(plan, state, result)


def _check_patch(request: Request, state: planning.PatchState, result: Result) -> None:
    name, found = f"patch {state.patch.id}", state.state + (f": {state.note}" if state.note else "")
    remedy, wanted = "", "not applied" if request.state == ABSENT else "applied"
    good = {"applied", "would apply", "not applied", fold.OBSOLETE}
    if request.state == AUDITED:
        good -= {"would apply"}
        remedy = "apply the series (playbooks/patch.yml)"
    if state.state == fold.OBSOLETE:
        found += f" (kept: {state.patch.keep_when_obsolete})"
    if request.state == ABSENT and state.state not in good:
        # How a patch would fit is no matter where it is taken away; drifted files have their own check.
        result.checks.add(name, "n/a", found, wanted)
        return
    result.checks.require(name, state.state in good, found, wanted, "" if state.state in good else remedy)


def _check_probes(plan: DistPlan, state: planning.PatchState, result: Result) -> None:
    current = {file.path: file.current for file in plan.files}
    for grep in state.patch.greps:
        lines = fold.grep_lines(current.get(grep.file), grep)
        holds = fold.grep_holds(current.get(grep.file), grep)
        found = f"found at line {', '.join(map(str, lines))}" if lines else "not found"
        result.checks.require(
            f"probe {state.patch.id}: {grep.pattern}",
            holds,
            found,
            "not found" if grep.absent else "found",
            "" if holds else "apply the series (playbooks/patch.yml)",
            grep.file,
            lines[0] if lines else None,
        )


def _audit_file(file: planning.FileState, result: Result) -> None:
    ok = file.state == planning.OK
    found = "no file" if file.current is None else f"sha256 {file.current_digest}"
    wanted = "no file" if file.target is None else f"sha256 {file.target_digest}"
    remedy = "" if ok else "apply the series (playbooks/patch.yml)"
    result.checks.require(f"file {file.path}", ok, f"{found} ({file.state})", wanted, remedy, file.path)


def patch_data(state: planning.PatchState) -> dict[str, Any]:
    """One patch as the report shows it."""
    return {
        "id": state.patch.id,
        "series": state.series,
        "title": state.patch.title,
        "state": state.state,
        "note": state.note,
        "files": state.patch.paths,
        "faults": list(state.patch.faults),
    }


def _file_data(file: planning.FileState) -> dict[str, Any]:
    return {
        "path": file.path,
        "state": file.state,
        "pristine": file.pristine_digest,
        "current": file.current_digest,
        "wanted": file.target_digest,
        "diff": _unified(file) if file.state == planning.DRIFTED else "",
    }

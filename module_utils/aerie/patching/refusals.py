"""Why nothing may be written, in the words of a check: what was found, what is wanted, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible.module_utils.aerie.patching import fold

if TYPE_CHECKING:
    from ansible.module_utils.aerie.patching.decide import DistPlan, FileState, PatchState


@dataclass
class Problem:
    """Why nothing may be written, in the words of a check."""

    name: str
    found: str
    wanted: str
    remedy: str
    file: str | None = None


def other_versions(plan: DistPlan) -> list[Problem]:
    """The series that are for another version than the installed one."""
    installed = plan.distribution
    if installed is None:
        return []
    return [
        Problem(
            f"series {one.name}",
            f"{one.distribution} {installed.version} is installed",
            f"{one.distribution} {one.version}, for which the series was made",
            f"install {one.distribution}=={one.version}, or choose the series for {installed.version}",
        )
        for one in plan.series
        if one.version != installed.version
    ]


def no_pristine(plan: DistPlan, file: FileState) -> Problem:
    """The pristine bytes are gone, so nothing can be computed."""
    found = (
        "no file" if file.current is None else f"sha256 {file.current_digest}, an edit that the series does not know"
    )
    return Problem(
        f"file {file.path}",
        found + ", and no pristine copy",
        f"sha256 {file.pristine_digest}, the pristine file",
        f"reinstall {plan.name} (uv pip install --reinstall --no-deps), then run again",
        file.path,
    )


def lost_patches(plan: DistPlan, file: FileState) -> list[str]:
    """The patches whose probes hold in the target of ``file`` and not in what is on disk."""
    lost = []
    for series in plan.series:
        for patch in series.patches:
            greps = [grep for grep in patch.greps if grep.file == file.path]
            gone = [g for g in greps if fold.grep_holds(file.target, g) and not fold.grep_holds(file.current, g)]
            lost += [f"{patch.id} (its probe {grep.pattern!r} fails)" for grep in gone[:1]]
    return lost


def drift(plan: DistPlan, file: FileState) -> Problem:
    """The file is neither pristine nor ours."""
    found = "no file" if file.current is None else f"sha256 {file.current_digest}"
    lost = lost_patches(plan, file)
    if lost:
        found += f"; no longer in it: {', '.join(lost)}"
    wanted = "no file" if file.target is None else f"sha256 {file.target_digest}"
    return Problem(
        f"file {file.path}",
        found,
        wanted,
        "somebody changed the file: look at the difference, then overwrite it with on_drift=restore, "
        f"or put the edit into the series; a reinstall of {plan.name} also helps",
        file.path,
    )


def misfit(outcome: PatchState) -> Problem:
    """The patch does not belong to this release."""
    moved = "refresh the series" in outcome.note
    name = f"{outcome.patch.id}.patch"
    mend = f"no line number is at fault: restore {name} if it is damaged, else edit it for this release"
    remedies = {
        fold.OBSOLETE: "drop the patch from the series, or say keep_when_obsolete: <reason>",
        fold.CONFLICTS: "tools/series.py refresh writes its line numbers anew" if moved else mend,
        fold.MISSING: "the release has no such file: make the patch anew or drop it",
    }
    file = outcome.patch.paths[0]
    found = f"{outcome.state}: {outcome.note}"
    return Problem(f"patch {outcome.patch.id}", found, "applied", remedies[outcome.state], file)

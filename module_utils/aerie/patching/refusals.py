"""Why nothing may be written, as failed checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible.module_utils.aerie.patching import fold
from ansible.module_utils.aerie.shared.checks import Check

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ansible.module_utils.aerie.patching.series import Series
    from ansible.module_utils.aerie.patching.states import FileState, PatchState

WRITABLE = "make the environment writable for the user of this run, then run again"
LOOK = "look at the file that is named, then run again"
PATCHABLE = "an environment that can be patched"


def _failed(name: str, found: str, wanted: str, remedy: str, file: str | None = None) -> Check:
    return Check(name, "fail", found, wanted, remedy, file)


def other_version(series: Series, installed: str) -> Check:
    """The series is for another version than the installed one."""
    return _failed(
        f"series {series.name}",
        f"{series.distribution} {installed} is installed",
        f"{series.distribution} {series.version}, for which the series was made",
        f"install {series.distribution}=={series.version}, or choose the series for {installed}",
    )


def occupied(path: str) -> Check:
    """The wheel delivers a file at the place of a module of ours."""
    return _failed(
        f"file {path}",
        "the wheel delivers a file of this name itself",
        "no such file, since the series adds it",
        "give the module of the series another name",
        path,
    )


def other_build(distribution: str, path: str, recorded: str | None, declared: str) -> Check:
    """RECORD names another digest than the series."""
    return _failed(
        f"file {path}",
        f"RECORD says sha256 {recorded}",
        f"sha256 {declared}, the file of the release that the series was made for",
        f"reinstall {distribution} from the released wheel; this is another build or an edited RECORD",
        path,
    )


def no_pristine(distribution: str, file: FileState) -> Check:
    """The pristine bytes are gone, so nothing can be computed."""
    found = (
        "no file" if file.current is None else f"sha256 {file.current_digest}, an edit that the series does not know"
    )
    return _failed(
        f"file {file.path}",
        found + ", and no pristine copy",
        f"sha256 {file.pristine_digest}, the pristine file",
        f"reinstall {distribution} (uv pip install --reinstall --no-deps), then run again",
        file.path,
    )


def drift(distribution: str, file: FileState, series: Sequence[Series]) -> Check:
    """The file is neither pristine nor ours."""
    found = "no file" if file.current is None else f"sha256 {file.current_digest}"
    lost = _lost_patches(file, series)
    if lost:
        found += f"; no longer in it: {', '.join(lost)}"
    return _failed(
        f"file {file.path}",
        found,
        "no file" if file.target is None else f"sha256 {file.target_digest}",
        "somebody changed the file: look at the difference, then overwrite it with on_drift=restore, "
        f"or put the edit into the series; a reinstall of {distribution} also helps",
        file.path,
    )


def _lost_patches(file: FileState, series: Sequence[Series]) -> list[str]:
    """The patches whose probes hold in the target of ``file`` and not in what is on disk."""
    lost = []
    for patch in (patch for candidate in series for patch in candidate.patches):
        greps = [grep for grep in patch.greps if grep.file == file.path]
        gone = [g for g in greps if fold.grep_holds(file.target, g) and not fold.grep_holds(file.current, g)]
        lost += [f"{patch.id} (its probe {grep.pattern!r} fails)" for grep in gone[:1]]
    return lost


def misfit(state: PatchState) -> Check:
    """The patch does not belong to this release."""
    moved = "refresh the series" in state.note
    name = f"{state.patch.id}.patch"
    mend = f"no line number is at fault: restore {name} if it is damaged, else edit it for this release"
    remedies = {
        fold.OBSOLETE: "drop the patch from the series, or say keep_when_obsolete: <reason>",
        fold.CONFLICTS: "tools/series.py refresh writes its line numbers anew" if moved else mend,
        fold.MISSING: "the release has no such file: make the patch anew or drop it",
    }
    found = f"{state.state}: {state.note}"
    return _failed(f"patch {state.patch.id}", found, "applied", remedies[state.state], state.patch.paths[0])


def unreadable_bytecode(path: Path) -> Check:
    """A compiled copy cannot be read, so it may be stale."""
    return _failed("file system", f"{path} cannot be read; nothing was changed", PATCHABLE, LOOK)


def does_not_compile(path: str, error: str) -> Check:
    """Python does not accept the patched file."""
    remedy = "mend the patch that makes this file; nothing was changed"
    return _failed(f"file {path}", f"the patched file does not compile: {error}", "Python", remedy, path)

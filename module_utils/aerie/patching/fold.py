"""What a series makes of pristine files, patch by patch. Computes only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, AbstractSet, Mapping, NamedTuple

from ansible.module_utils.aerie.patching import diff

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible.module_utils.aerie.patching.series import Grep, SeriesPatch

FITS, OBSOLETE, CONFLICTS, MISSING, UNKNOWN = "fits", "obsolete", "conflicts", "missing target", "unknown"


@dataclass(frozen=True)
class Outcome:
    """What became of one patch: one of the five states above, and why."""

    patch: SeriesPatch
    state: str
    note: str = ""


class Folded(NamedTuple):
    """The bytes of every file after all patches (``None``: no such file), and one outcome for each patch."""

    files: dict[str, bytes | None]
    outcomes: list[Outcome]


def grep_lines(content: bytes | None, grep: Grep) -> list[int]:
    """The numbers, from 1, of the lines in which the pattern is found."""
    if content is None:
        return []
    pattern = re.compile(grep.pattern)
    text = content.decode("utf-8", errors="replace")
    return [number for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def grep_holds(content: bytes | None, grep: Grep) -> bool:
    """Whether the probe holds; a probe on a missing file never does."""
    return content is not None and bool(grep_lines(content, grep)) != grep.absent


def fold(
    patches: Iterable[SeriesPatch], pristine: Mapping[str, bytes | None], unknown: AbstractSet[str] = frozenset()
) -> Folded:
    """Apply the patches in order; a patch that does not fit as a whole leaves no trace.

    ``pristine`` maps paths to bytes, ``None`` for a file that is not there. ``unknown`` are paths of which the
    pristine bytes cannot be had: a patch of such a file is left out.
    """
    files = dict(pristine)
    outcomes = []
    for patch in patches:
        outcome, edited = _apply(patch, files, unknown)
        files.update(edited)
        outcomes.append(outcome)
    return Folded(files, outcomes)


def _apply(
    patch: SeriesPatch, files: Mapping[str, bytes | None], unknown: AbstractSet[str]
) -> tuple[Outcome, dict[str, bytes]]:
    """The outcome of one patch, and the new bytes of the files that it edits."""
    lost = [path for path in patch.paths if path in unknown]
    if lost:
        return Outcome(patch, UNKNOWN, f"the pristine bytes of {', '.join(lost)} cannot be had"), {}
    missing = [path for path in patch.paths if files.get(path) is None]
    if missing:
        return Outcome(patch, MISSING, f"{', '.join(missing)} is not in the distribution"), {}
    try:
        edited = {edit.path: diff.apply(files[edit.path] or b"", edit) for edit in patch.parsed.files}
    except diff.ConflictError as conflict:
        held = [grep_holds(files.get(grep.file), grep) for grep in patch.greps]
        if held and all(held):
            return Outcome(patch, OBSOLETE, "every probe holds without the patch"), {}
        return Outcome(patch, CONFLICTS, str(conflict)), {}
    return Outcome(patch, FITS), edited

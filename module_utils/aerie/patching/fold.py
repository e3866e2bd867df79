"""What a series makes of pristine files, patch by patch, without writing anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible.module_utils.aerie.patching import diff

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible.module_utils.aerie.patching.series import Grep, SeriesPatch

FITS, OBSOLETE, CONFLICTS, MISSING = "fits", "obsolete", "conflicts", "missing target"


@dataclass(frozen=True)
class Outcome:
    """What became of one patch: one of the four states above, and why."""

    patch: SeriesPatch
    state: str
    note: str = ""


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
    patches: Iterable[SeriesPatch], pristine: dict[str, bytes | None]
) -> tuple[dict[str, bytes | None], list[Outcome]]:
    """Apply the patches in order; a patch that does not fit as a whole leaves no trace.

    ``pristine`` maps paths to bytes, ``None`` for a file that is not there. Returns the resulting
    bytes by path, and one outcome for each patch.
    """
    now = dict(pristine)
    outcomes = []
    for patch in patches:
        missing = [path for path in patch.paths if now.get(path) is None]
        if missing:
            outcomes.append(Outcome(patch, MISSING, f"{', '.join(missing)} is not in the distribution"))
            continue
        try:
            new = {one.path: diff.apply(now[one.path] or b"", one) for one in patch.parsed.files}
        except diff.ConflictError as conflict:
            held = [grep_holds(now.get(grep.file), grep) for grep in patch.greps]
            if held and all(held):
                outcomes.append(Outcome(patch, OBSOLETE, "every probe holds without the patch"))
            else:
                outcomes.append(Outcome(patch, CONFLICTS, str(conflict)))
            continue
        now.update(new)
        outcomes.append(Outcome(patch, FITS))
    return now, outcomes

"""Check the folder as a whole: which files are in it, and how they are numbered."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from aerie_host.folder.layout import SAMPLE_NAME, Folder
from aerie_host.folder.sample_format import TAKEN_BY_TRAINING
from aerie_host.report.wording import several
from aerie_host.shared.shard import WHOLE

if TYPE_CHECKING:
    from aerie_host.folder.manifest import Manifest
    from aerie_host.shared.checks import Checks

REMEDY = "run the extraction again (--tags extract): it replaces damaged files"
NO_MANIFEST = "the folder has no manifest.json"
# The only files that Aerie writes beside the samples.
OURS = {"manifest.json"}


@dataclasses.dataclass(frozen=True)
class Contents:
    """Names of the files in a folder, relative to it.

    Attributes:
        samples: files that count as samples: training reads them.
        unfinished: left-overs of interrupted writes.
        other: all others that Aerie did not write.
    """

    samples: list[str]
    unfinished: list[str]
    other: list[str]


def contents(folder: Folder) -> Contents:
    """List the files of the folder and its sub-folders."""
    samples = [path.relative_to(folder.path).as_posix() for path in folder.training_files()]
    unfinished: list[str] = []
    other: list[str] = []
    for root, folders, names in os.walk(folder.path):
        if root == str(folder.path):
            folders[:] = [name for name in folders if name != folder.state.name]
        for name in names:
            relative = Path(root, name).relative_to(folder.path).as_posix()
            if folder.takes(name) or relative in OURS:
                continue
            left = (
                name.endswith((".partial", ".tmp", ".temp", ".part", ".swp", "~")) or f".{TAKEN_BY_TRAINING}." in name
            )
            (unfinished if left else other).append(relative)
    if folder.temporary.is_dir():
        unfinished += [path.relative_to(folder.path).as_posix() for path in folder.temporary.iterdir()]
    return Contents(samples, sorted(unfinished), sorted(other))


def check_contents(checks: Checks, found: Contents, manifest: Manifest | None) -> None:
    """Check for missing files, foreign files, left-overs of interrupted writes, and stray files."""
    there = set(found.samples)
    if manifest is None:
        checks.add("every sample has its file", "n/a", f"{len(there)} files", f"a list of them: {NO_MANIFEST}")
        checks.add("no other files for training", "n/a", f"{len(there)} files", f"a list of them: {NO_MANIFEST}")
    else:
        names = {record.file for record in manifest.samples}
        missing, foreign = sorted(names - there), sorted(there - names)
        count = f"{len(names) - len(missing)} of {len(names)} files"
        text = count + (f", missing: {several(missing)}" if missing else "")
        checks.require("every sample has its file", not missing and bool(names), text, "at least one, and all", REMEDY)
        remedy = "move them away: training reads every file whose name ends in pt"
        checks.require("no other files for training", not foreign, several(foreign) or "none", "none", remedy)
        indices = [record.index for record in manifest.samples]
        checks.require("every sample once", len(set(indices)) == len(indices), len(set(indices)), len(indices), REMEDY)
    for name, left, remedy in (
        ("no unfinished files", found.unfinished, "remove them when no extraction is running"),
        ("no stray files", found.other, "move them away, unless you put them there; training does not read them"),
    ):
        checks.add(name, "warn" if left else "pass", several(left) or "none", "none", remedy if left else "")


def check_numbering(checks: Checks, found: Contents, manifest: Manifest | None) -> None:
    """Check the numbers in ``data_<i>.pt`` for holes: each must be a row of the data that gave no sample."""
    numbers = {int(match[1]) for match in map(SAMPLE_NAME.fullmatch, found.samples) if match}
    name = "no holes in the numbering"
    if not numbers:
        checks.add(name, "n/a", "no file is named data_<i>.pt", "numbered files")
        return
    named = set(manifest.skipped) if manifest else set()
    last = max(numbers | named | ({record.index for record in manifest.samples} if manifest else set()))
    takes = manifest.shard.takes if manifest else WHOLE.takes
    holes = [number for number in range(last + 1) if takes(number) and number not in numbers and number not in named]
    explained = len(named - numbers)
    text = f"{len(holes)}: {several([f'data_{hole}.pt' for hole in holes])}" if holes else "none"
    text += f" ({explained} lines gave no sample, as the manifest says)" if explained else ""
    if manifest:
        checks.require(name, not holes, text, "none but lines without a sample", REMEDY)
    else:
        # Without a manifest it is not known which rows gave no sample.
        checks.add(
            name, "warn" if holes else "pass", text, "none", "compare with what wrote the files" if holes else ""
        )

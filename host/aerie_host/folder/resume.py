"""What an output folder already holds of the job at hand, and what has to be done."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Any

from aerie_host.folder import fingerprint as fingerprints
from aerie_host.report.outcome import JobError
from aerie_host.report.wording import several
from aerie_host.shared.digests import sha256_file, sha256_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerie_host.data.samples import Sample
    from aerie_host.folder.layout import Entry, Folder


@dataclasses.dataclass
class Kept:
    """Finished samples that stay, and why others are done (again)."""

    entries: dict[int, Entry] = dataclasses.field(default_factory=dict)
    redone: dict[str, int] = dataclasses.field(default_factory=dict)


def refuse_other_inputs(folder: Folder, fingerprint: dict[str, Any]) -> None:
    """``JobError`` when the folder was begun with other inputs, or holds samples of unknown origin."""
    before = folder.begun_with()
    if before is None:
        if folder.training_files():
            raise JobError(
                f"{folder.path} holds files for training that this job did not write: "
                "give another folder, or replace the samples in it (hidden_states_overwrite: true)"
            )
        return
    changed = fingerprints.differences(before, fingerprint)
    if changed:
        raise JobError(
            f"{folder.path} was extracted with other inputs; changed: {', '.join(changed)}. "
            "Give another folder, or replace the samples (hidden_states_overwrite: true)"
        )


def refuse_foreign_files(folder: Folder, indices: set[int] | None = None) -> None:
    """``JobError`` when training would read files there that are no samples of this job. They are never removed.

    Nor are folders that have the name of a sample. Without indices any sample counts as this job's: it is replaced.
    """
    if folders := folder.in_the_way(indices):
        raise JobError(
            f"{folder.path} holds folders that have names of samples: {several(folders, 10)}. Move them away"
        )
    foreign = folder.foreign_files(indices)
    if foreign:
        raise JobError(
            f"{folder.path} holds files that training would read but that are not its samples: {several(foreign, 10)}"
        )


def finished_manifest(folder: Folder, fingerprint: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest, when it is of this fingerprint and every file has its digest; needs no tokenizer and no model."""
    # What is being replaced is not what was asked for, whatever it is.
    manifest = None if folder.replacing.exists() else folder.read_manifest()
    if manifest is None or not isinstance(manifest.get("fingerprint"), dict) or not manifest.get("samples"):
        return None
    if fingerprints.differences(manifest["fingerprint"], fingerprint):
        return None
    try:
        wanted = {folder.path / item["file"]: item["sha256"] for item in manifest["samples"]}
        bytes_wanted = [item["bytes"] for item in manifest["samples"]]
    except (TypeError, KeyError):
        # Altered by hand: the journal knows.
        return None
    if set(wanted) != set(folder.training_files()):
        return None
    if [path.stat().st_size if path.is_file() else -1 for path in wanted] != bytes_wanted:
        return None
    return manifest if sha256_files(wanted) == wanted else None


def keep_good(folder: Folder, samples: Iterable[Sample]) -> Kept:
    """Compare journal and files with the samples asked: what is whole stays, the rest is done again and counted."""
    journal = folder.read_journal()
    kept = Kept()
    reasons: collections.Counter[str] = collections.Counter()
    for sample in samples:
        entry = journal.get(sample.index)
        path = folder.sample(sample.index)
        if entry is None:
            if path.exists():
                reasons["file not in the journal"] += 1
        elif not path.exists():
            reasons["file missing"] += 1
        elif path.stat().st_size != entry.bytes:
            reasons["file of another size"] += 1
        elif entry.tokens_sha256 != sample.digest:
            reasons["other tokens"] += 1
        elif sha256_file(path) != entry.sha256:
            reasons["file altered"] += 1
        else:
            kept.entries[sample.index] = entry
    kept.redone = dict(sorted(reasons.items()))
    return kept

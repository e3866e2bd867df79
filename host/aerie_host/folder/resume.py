"""Resume an extraction: which samples of the job are finished and intact, and when a folder must not be used."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Any

from aerie_host.folder import fingerprint as fingerprints
from aerie_host.folder import journal
from aerie_host.folder.layout import OUTPUT
from aerie_host.folder.manifest import read_records
from aerie_host.folder.overwrite import OVERWRITE
from aerie_host.folder.record import FieldError
from aerie_host.report.wording import several
from aerie_host.shared.digests import sha256_file, sha256_files
from aerie_host.shared.durable import read_json
from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerie_host.data.samples import Sample
    from aerie_host.folder.layout import Folder
    from aerie_host.folder.record import SampleRecord

OTHER_FOLDER = f"name another folder in hidden_states_output_path, or {OVERWRITE}"


@dataclasses.dataclass
class Kept:
    """Records of the finished samples that are kept, and how many are extracted again, by reason."""

    records: dict[int, SampleRecord] = dataclasses.field(default_factory=dict)
    redone: dict[str, int] = dataclasses.field(default_factory=dict)


def refuse_other_inputs(folder: Folder, fingerprint: dict[str, Any]) -> None:
    """``Refusal`` when the folder was begun with other inputs, or holds samples of unknown origin."""
    before = folder.begun_with()
    if before is None:
        if folder.training_files():
            found = f"{folder.path} holds files for training that this job did not write"
            raise Refusal(OUTPUT, found, "a folder of this job", OTHER_FOLDER)
        return
    changed = fingerprints.differences(before, fingerprint)
    if changed:
        found = f"{folder.path} was extracted with other inputs; changed: {', '.join(changed)}"
        raise Refusal(OUTPUT, found, "a folder of this job", OTHER_FOLDER)


def refuse_foreign_files(folder: Folder, indices: set[int] | None = None) -> None:
    """``Refusal`` when training would read files in the folder that are no samples of this job.

    Such files are never removed, nor are folders with the name of a sample. Without indices every sample counts as one
    of this job: it is replaced.
    """
    if folders := folder.folders_named_as_samples(indices):
        found = f"{folder.path} holds folders that have names of samples: {several(folders, 10)}"
        raise Refusal(OUTPUT, found, "files only", "move them away")
    foreign = folder.foreign_files(indices)
    if foreign:
        found = f"{folder.path} holds files that training would read but that are not its samples: "
        raise Refusal(OUTPUT, found + several(foreign, 10), "samples of this job only", "move them away")


def finished_manifest(folder: Folder, fingerprint: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest as parsed JSON, when it has this fingerprint and every file has its digest, else None.

    Needs neither the tokenizer nor the model.
    """
    # A replacement that was begun is to be finished, whatever the manifest says.
    manifest = None if folder.replacing.exists() else read_json(folder.manifest)
    if manifest is None or not isinstance(manifest.get("fingerprint"), dict) or not manifest.get("samples"):
        return None
    if fingerprints.differences(manifest["fingerprint"], fingerprint):
        return None
    try:
        records = read_records(manifest)
    except FieldError:
        # Somebody changed it: the journal tells what is finished.
        return None
    digests = {folder.path / record.file: record.sha256 for record in records}
    if set(digests) != set(folder.training_files()):
        return None
    if [path.stat().st_size if path.is_file() else -1 for path in digests] != [record.bytes for record in records]:
        return None
    return manifest if sha256_files(digests) == digests else None


def keep_good(folder: Folder, samples: Iterable[Sample]) -> Kept:
    """Compare journal and files with the requested samples: keep the intact ones, count the others by reason."""
    records = journal.read(folder.journal)
    kept = Kept()
    reasons: collections.Counter[str] = collections.Counter()
    for sample in samples:
        record = records.get(sample.index)
        path = folder.sample(sample.index)
        if record is None:
            if path.exists():
                reasons["file not in the journal"] += 1
        elif not path.exists():
            reasons["file missing"] += 1
        elif path.stat().st_size != record.bytes:
            reasons["file of another size"] += 1
        elif record.tokens_sha256 != sample.digest:
            reasons["other tokens"] += 1
        elif sha256_file(path) != record.sha256:
            reasons["file altered"] += 1
        else:
            kept.records[sample.index] = record
    kept.redone = dict(sorted(reasons.items()))
    return kept

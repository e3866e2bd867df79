"""Compare some files with an independent Transformers forward of the same checkpoint."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host.checkpoint.packaged_model import RECORD
from aerie_host.folder.sample_file import load
from aerie_host.folder.sample_format import HIDDEN_STATES, INPUT_IDS
from aerie_host.judge.sample_folder import NO_MANIFEST
from aerie_host.report.wording import several
from aerie_host.shared.digests import folder_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerie_host.folder.layout import Folder
    from aerie_host.folder.manifest import Manifest
    from aerie_host.folder.record import SampleRecord
    from aerie_host.shared.checks import Checks

CHECK = "equality with Transformers"


def choose(records: Sequence[SampleRecord], count: int) -> list[SampleRecord]:
    """``count`` samples spread over the range of lengths, with the shortest and the longest; of one, the longest."""
    ordered = sorted(records, key=lambda record: (record.length, record.file))
    if count >= len(ordered):
        return ordered
    if count == 1:
        return ordered[-1:]
    return [ordered[round(number * (len(ordered) - 1) / (count - 1))] for number in range(count)]


def find_model(manifest: Manifest | None, requested: str) -> tuple[Path | None, str]:
    """The checkpoint of the manifest, or the reason why it cannot be used; ``requested``: where the caller has it."""
    if manifest is None:
        return None, f"{NO_MANIFEST} that names the model"
    if not manifest.model_digest:
        path = Path(requested or manifest.model)
        return (path, "") if (path / "config.json").is_file() else (None, f"{path} is not on this host")
    places = dict.fromkeys(filter(None, (requested, manifest.model)))
    existing = [Path(place) for place in places if (Path(place) / "config.json").is_file()]
    for path in existing:
        if folder_digest(path, skip=(RECORD,)) == manifest.model_digest:
            return path, ""
    if existing:
        return None, f"{existing[0]} is not the model of the manifest (another digest)"
    return None, f"the manifest's model {manifest.model} is not on this host"


def compare(
    checks: Checks, folder: Folder, chosen: Sequence[SampleRecord], layers: Sequence[int], model: Path, remote: bool
) -> dict[str, Any]:
    """Compare the chosen files with Transformers; one check per layer, and the numbers for the report."""
    import torch

    from aerie_host.checkpoint.reference_forward import ReferenceModel, Rounding, measure

    began = time.monotonic()
    exact = ReferenceModel(model, torch.float32, trust_remote_code=remote)
    rounded = ReferenceModel(model, torch.bfloat16, trust_remote_code=remote)
    rounding = Rounding()
    differences = []
    for record in chosen:
        data = load(folder.path / record.file)
        tokens = data[INPUT_IDS].tolist()
        forward = exact.forward(tokens)
        rounding.add(rounded.forward(tokens), forward)
        pairs = zip(layers, data[HIDDEN_STATES], strict=True)
        differences += [measure(record.file, state, forward, layer) for layer, state in pairs]
    by_layer = []
    for layer in layers:
        of_layer = [difference for difference in differences if difference.layer == layer]
        problems = [problem for problem in map(rounding.problem, of_layer) if problem]
        median, worst = (
            max(difference.median for difference in of_layer),
            max(difference.worst for difference in of_layer),
        )
        found = f"{len(of_layer)} files, median row {median:.2%}, worst row {worst:.2%}"
        bounds = rounding.median_bound(layer), rounding.row_bound(layer)
        wanted = f"at most {bounds[0]:.2%} and {bounds[1]:.2%}, which rounding explains"
        remedy = "the extraction is wrong: check the patches (--tags verify)"
        checks.require(f"layer {layer} equals Transformers", not problems, several(problems) or found, wanted, remedy)
        by_layer.append({"layer": layer, "median": median, "worst": worst, "bound": bounds[1]})
    return {
        "files": len(chosen),
        "layers": by_layer,
        "seconds": round(time.monotonic() - began, 1),
        "largest_median_row": max(layer["median"] for layer in by_layer),
        "largest_row": max(layer["worst"] for layer in by_layer),
    }

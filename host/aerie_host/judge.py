"""``judge``: prove the files of an extraction, one after the other, and some of them against Transformers."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host import sample_file
from aerie_host.checks import Checks
from aerie_host.conversations import read_conversations
from aerie_host.folder import Folder
from aerie_host.outcome import JobError, Outcome, UsageError
from aerie_host.sample_file import PROPERTIES, Expected, inspect
from aerie_host.summaries import LayerStatistics, histogram

if TYPE_CHECKING:
    from aerie_host.spec import Spec

SHOWN = 5
REMEDY = "run the extraction again: what is damaged is written anew"


@dataclasses.dataclass(frozen=True)
class Asked:
    """What was asked of the extraction, where the caller says so: empty and 0 stand for no word."""

    layers: list[int]
    hidden_size: int
    samples: int


def _samples_in(data: str, max_samples: int) -> int:
    """How many samples the data asks for, counted anew and not taken from the manifest; 0 without a data file."""
    if not data:
        return 0
    try:
        lines = sum(1 for _ in read_conversations(Path(data)))
    except OSError as error:
        raise UsageError(f"judge: {data} cannot be read: {error.strerror}") from error
    return min(lines, max_samples) if max_samples else lines


def _expected(manifest: dict[str, Any]) -> list[Expected]:
    return [
        Expected(
            file=item["file"],
            length=item["length"],
            trainable=item["trainable"],
            sha256=item["sha256"],
            layers=tuple(manifest["layers"]),
            hidden_size=manifest["hidden_size"],
        )
        for item in manifest["samples"]
    ]


def _several(problems: list[str]) -> str:
    more = len(problems) - SHOWN
    return "; ".join(problems[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _whole(checks: Checks, folder: Folder, manifest: dict[str, Any], asked: Asked) -> None:
    """Checks of the folder as a whole."""
    names = [item["file"] for item in manifest["samples"]]
    there = {path.relative_to(folder.path).as_posix() for path in folder.training_files()}
    missing, foreign = sorted(set(names) - there), sorted(there - set(names))
    count = f"{len(names) - len(missing)} of {len(names)} files"
    found = count + (f", missing: {_several(missing)}" if missing else "")
    checks.require("every sample has its file", not missing and bool(names), found, "at least one, and all", REMEDY)
    remedy = "move them away: training reads every file whose name ends in pt"
    checks.require("no other files for training", not foreign, _several(foreign) or "none", "none", remedy)
    indices = [item["index"] for item in manifest["samples"]]
    checks.require("every sample once", len(set(indices)) == len(indices), len(set(indices)), len(indices), REMEDY)
    if asked.samples:
        got = len(names) + len(manifest.get("skipped", []))
        text = f"{len(names)} written, {len(manifest.get('skipped', []))} skipped"
        checks.require("as many samples as asked", got == asked.samples, text, asked.samples, REMEDY)
    if asked.layers:
        same = manifest["layers"] == asked.layers
        checks.require(
            "the layers asked, in order", same, manifest["layers"], asked.layers, "overwrite or use another folder"
        )
    if asked.hidden_size:
        same = manifest["hidden_size"] == asked.hidden_size
        checks.require(
            "hidden size", same, manifest["hidden_size"], asked.hidden_size, "look at the model's config.json"
        )


def _files(checks: Checks, folder: Folder, expected: list[Expected], statistics: LayerStatistics) -> set[str]:
    """Checks of every file; returns the names of those with a flaw."""
    flaws: dict[str, list[str]] = {name: [] for name in PROPERTIES}
    flawed = set()
    for one in expected:
        for flaw in inspect(folder.path, one, statistics.add):
            flaws[flaw.prop].append(flaw.text)
            flawed.add(one.file)
    for name, problems in flaws.items():
        checks.require(
            name, not problems, _several(problems) or f"{len(expected)} files", f"{len(expected)} files", REMEDY
        )
    return flawed


def choose(expected: list[Expected], count: int) -> list[Expected]:
    """``count`` files over the whole range of lengths, the shortest and the longest among them."""
    ordered = sorted(expected, key=lambda one: (one.length, one.file))
    if count >= len(ordered):
        return ordered
    if count == 1:
        return ordered[-1:]
    return [ordered[round(number * (len(ordered) - 1) / (count - 1))] for number in range(count)]


def _reference(checks: Checks, folder: Folder, chosen: list[Expected], model: Path, remote: bool) -> dict[str, Any]:
    """Compare the chosen files with Transformers."""
    import torch

    from aerie_host.reference import ReferenceModel, Rounding, measure

    began = time.monotonic()
    exact = ReferenceModel(model, torch.float32, trust_remote_code=remote)
    rounded = ReferenceModel(model, torch.bfloat16, trust_remote_code=remote)
    rounding = Rounding()
    differences = []
    for one in chosen:
        data = sample_file.load(folder.path / one.file)
        tokens = data["input_ids"].tolist()
        forward = exact.forward(tokens)
        rounding.add(rounded.forward(tokens), forward)
        pairs = zip(one.layers, data["hidden_states"], strict=True)
        differences += [measure(one.file, state, forward, layer) for layer, state in pairs]
    by_layer = []
    for layer in chosen[0].layers:
        mine = [one for one in differences if one.layer == layer]
        problems = [problem for problem in map(rounding.problem, mine) if problem]
        median, worst = max(one.median for one in mine), max(one.worst for one in mine)
        found = f"{len(mine)} files, median row {median:.2%}, worst row {worst:.2%}"
        wanted = (
            f"at most {rounding.median_bound(layer):.2%} and {rounding.row_bound(layer):.2%}, which rounding explains"
        )
        remedy = "the extraction is wrong: look at the patches (--tags verify)"
        checks.require(f"layer {layer} equals Transformers", not problems, _several(problems) or found, wanted, remedy)
        by_layer.append({"layer": layer, "median": median, "worst": worst, "bound": rounding.row_bound(layer)})
    seconds = round(time.monotonic() - began, 1)
    result = {"files": len(chosen), "layers": by_layer, "seconds": seconds}
    result["largest_median_row"] = max(one["median"] for one in by_layer)
    result["largest_row"] = max(one["worst"] for one in by_layer)
    return result


def run(spec: Spec, check: bool) -> Outcome:
    """Judge the folder; reads only, so ``check`` changes nothing."""
    folder = Folder(Path(spec.text("output")))
    layers, hidden_size = spec.numbers("layer_ids", []), spec.number("hidden_size", 0)
    data_file, max_samples = spec.text("data", ""), spec.number("max_samples", 0)
    model, remote = spec.text("model", ""), spec.flag("trust_remote_code", False)
    reference_samples = spec.number("reference_samples", 0)
    spec.finish()
    checks = Checks()
    manifest = folder.read_manifest()
    if manifest is None:
        if check and not folder.manifest.exists():
            checks.add("manifest", "n/a", "none yet", "one: the extraction writes it")
            return Outcome("tensors", checks, {}, False, f"would judge {folder.path}")
        raise JobError(f"{folder.manifest} is not there or broken: the extraction in this folder did not finish")
    try:
        expected = _expected(manifest)
    except (KeyError, TypeError) as error:
        raise JobError(f"{folder.manifest} is no manifest of this program: {error!r}") from error
    _whole(checks, folder, manifest, Asked(layers, hidden_size, _samples_in(data_file, max_samples)))
    statistics = LayerStatistics(manifest["layers"])
    flawed = _files(checks, folder, expected, statistics)
    tokens = sum(one.length for one in expected)
    data: dict[str, Any] = {"output": str(folder.path), "samples": len(expected), "tokens": tokens}
    data["statistics"] = statistics.as_list()
    data["lengths"] = histogram([one.length for one in expected])
    summary = f"{len(expected):,} samples, {tokens:,} tokens judged"
    sound = [one for one in expected if one.file not in flawed]
    if reference_samples and sound:
        chosen = choose(sound, reference_samples)
        path = Path(model or manifest["model"]["path"])
        reference = _reference(checks, folder, chosen, path, remote)
        data["reference"] = reference
        data["largest_difference"] = reference["largest_median_row"]
        summary += (
            f"; {len(chosen)} files differ from Transformers by {reference['largest_median_row']:.2%} (median row)"
        )
        summary += f" and {reference['largest_row']:.2%} (worst row) at most"
    elif not reference_samples:
        checks.add("equality with Transformers", "n/a", "not asked", "asked for small models only")
    data["summary"] = summary
    return Outcome("tensors", checks, data, False, summary)

"""``judge``: prove the files of an extraction, ours or another's, and some of ours against Transformers.

What nobody says cannot be judged: it is reported as not applicable, with the reason, and never as passed.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host.data.data_file import DataFile
from aerie_host.folder.expectation import Contract, Expected
from aerie_host.folder.layout import Folder
from aerie_host.folder.manifest import Manifest, ManifestError, read
from aerie_host.folder.sample_file import load
from aerie_host.judge import flaws
from aerie_host.judge import reference as judge_reference
from aerie_host.judge.sample_files import Totals, judge_files
from aerie_host.judge.sample_folder import NO_MANIFEST, REMEDY, check_contents, check_numbering, contents
from aerie_host.report.outcome import JobError, Outcome, UsageError
from aerie_host.report.summaries import histogram
from aerie_host.shared import shard as shards
from aerie_host.shared.checks import Checks
from aerie_host.shared.model_config import read_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerie_host.shared.shard import Shard
    from aerie_host.spec import Spec


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the caller says: empty and 0 stand for no word."""

    layers: list[int]
    hidden_size: int
    vocab_size: int
    data: str
    max_samples: int
    shard: Shard | None
    model: str
    remote: bool
    reference_samples: int


def _asked(spec: Spec) -> Asked:
    return Asked(
        layers=spec.numbers("layer_ids", []),
        hidden_size=spec.number("hidden_size", 0),
        vocab_size=spec.number("vocab_size", 0),
        data=spec.text("data", ""),
        max_samples=spec.number("max_samples", 0),
        shard=shards.parse(shard) if (shard := spec.text("shard", "")) else None,
        model=spec.text("model", ""),
        remote=spec.flag("trust_remote_code", False),
        reference_samples=spec.number("reference_samples", 0),
    )


def _contract(folder: Path, files: Sequence[Expected], manifest: Manifest | None, asked: Asked) -> Contract:
    """What all files must be: by the manifest, else by what the caller says, else like the first that can be read."""
    if manifest is not None:
        vocabulary = asked.vocab_size
        if not vocabulary and (Path(manifest.model) / "config.json").is_file():
            vocabulary = read_facts(Path(manifest.model)).vocab_size
        source = f"were asked: {list(manifest.layers)}"
        return Contract(manifest.layers, len(manifest.layers), manifest.hidden_size, vocabulary, source)
    count, hidden_size, source = len(asked.layers), asked.hidden_size, f"were asked: {asked.layers}"
    for one in files:
        try:
            states = load(folder / one.file, mapped=True)["hidden_states"]
            found = len(states), int(states[0].shape[-1])
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            continue
        if not count:
            count, source = found[0], f"are in {one.file}"
        hidden_size = hidden_size or found[1]
        break
    return Contract(tuple(asked.layers), count, hidden_size, asked.vocab_size, source)


def _check_asked(checks: Checks, manifest: Manifest | None, asked: Asked, contract: Contract) -> None:
    """What the caller asked for against what the manifest says of the whole."""
    name, remedy = "the layers asked, in order", "overwrite or use another folder"
    if manifest is None:
        found = f"{contract.count} tensors per file"
        checks.add(name, "n/a", found, f"the layers' numbers: {NO_MANIFEST}; the number of layers is checked")
    elif asked.layers:
        layers = list(manifest.layers)
        checks.require(name, layers == asked.layers, layers, asked.layers, remedy)
    else:
        checks.add(name, "n/a", list(manifest.layers), "any: the caller asks for none")
    if asked.shard and manifest is not None:
        same = asked.shard == manifest.shard
        checks.require("shard", same, manifest.shard, asked.shard, "use another folder for each shard")
    name, remedy = "hidden size", "look at the model's config.json"
    if asked.hidden_size and manifest is not None:
        same = manifest.hidden_size == asked.hidden_size
        checks.require(name, same, manifest.hidden_size, asked.hidden_size, remedy)
    elif not asked.hidden_size:
        checks.add(name, "n/a", contract.hidden_size, "the same in all files; the caller asks for none")


def _check_count(checks: Checks, manifest: Manifest | None, asked: Asked) -> None:
    """As many samples as the data asks for, counted anew and not taken from the manifest."""
    name = "as many samples as asked"
    if manifest is None:
        checks.add(name, "n/a", "not known", f"the data's lines: {NO_MANIFEST} that says which they are")
        return
    text = f"{len(manifest.samples)} written, {len(manifest.skipped)} skipped"
    if not asked.data:
        checks.add(name, "n/a", text, "the data's lines: the caller names no data")
        return
    path = Path(asked.data)
    if not path.exists():
        checks.add(name, "n/a", text, f"the data's lines: {path} is not on this host")
        return
    shard = asked.shard or manifest.shard
    try:
        rows = DataFile(path).read(shard)
        wanted = sum(1 for row in rows if not asked.max_samples or row.place < asked.max_samples)
    except OSError as error:
        raise UsageError(f"judge: {path} cannot be read: {error.strerror}") from error
    got = len(manifest.samples) + len(manifest.skipped)
    checks.require(name, got == wanted, text, wanted, REMEDY)


def _check_files(checks: Checks, totals: Totals, count: int, manifest: Manifest | None, contract: Contract) -> None:
    """One check per property of a file."""
    for name, texts in totals.flaws.items():
        if name in flaws.OF_MANIFEST and manifest is None:
            checks.add(name, "n/a", f"{count} files", f"digests to compare with: {NO_MANIFEST}")
        else:
            checks.require(
                name,
                not texts.count and count > 0,
                texts if texts.count else f"{count} files",
                f"{count} files",
                REMEDY,
            )
    if not contract.vocabulary:
        reason = "the model of the manifest is not on this host" if manifest else f"{NO_MANIFEST} that names the model"
        checks.add("token ids in the vocabulary", "n/a", "not known", f"the vocabulary's size: {reason}")


def _check_coverage(checks: Checks, totals: Totals, manifest: Manifest | None) -> dict[str, Any]:
    """How many of the tokens are there, how many are trained on, and which samples are there twice."""
    tokens = sum(totals.lengths)
    data: dict[str, Any] = {}
    if manifest is None:
        checks.add("token coverage", "n/a", f"{tokens:,} tokens", f"how many there should be: {NO_MANIFEST}")
    else:
        share = data["token_coverage"] = tokens / manifest.tokens if manifest.tokens else 0.0
        text = f"{tokens:,} of {manifest.tokens:,} tokens ({share:.2%})"
        text += f"; {len(manifest.skipped)} lines gave no sample" if manifest.skipped else ""
        text += f"; {manifest.truncated} samples were cut" if manifest.truncated else ""
        checks.require("token coverage", tokens == manifest.tokens and tokens > 0, text, "all of them", REMEDY)
    share = data["mask_coverage"] = totals.trainable / tokens if tokens else 0.0
    text = f"{totals.trainable:,} of {tokens:,} tokens ({share:.2%}) are trained on"
    remedy = ""
    if totals.untrained.count or not tokens:
        status, text = "fail", f"{text}; {totals.untrained.count} samples have none: {totals.untrained}"
        remedy = "leave such samples out: training learns nothing from them"
    elif share == 1:
        status, remedy = "warn", "look at what made the masks: prompts are trained on as well"
    else:
        status = "pass"
    checks.add("mask coverage", status, text, "some in every sample, and not all", remedy)
    twins = totals.twins
    remedy = (
        "remove the repeats from the data, unless they are meant: training takes each of them" if twins.count else ""
    )
    checks.add("no sample twice", "warn" if twins.count else "pass", twins if twins.count else "none", "none", remedy)
    return data


def _reference(
    checks: Checks, folder: Folder, totals: Totals, manifest: Manifest | None, asked: Asked
) -> dict[str, Any] | None:
    """Compare with Transformers where that was asked for and the model is known."""
    if not asked.reference_samples:
        checks.add(judge_reference.CHECK, "n/a", "not asked", "asked for small models only")
        return None
    model, reason = judge_reference.find_model(manifest, asked.model)
    sound = [one for one in manifest.samples if one.file not in totals.flawed] if manifest else []
    if model is None or manifest is None or not sound:
        checks.add(judge_reference.CHECK, "n/a", "not compared", reason or "a file without a flaw: there is none")
        return None
    chosen = judge_reference.choose(sound, asked.reference_samples)
    return judge_reference.compare(checks, folder, chosen, manifest.layers, model, asked.remote)


def _nothing_to_judge(folder: Folder, check: bool) -> Outcome | None:
    """Refuse a folder that cannot be judged; before an extraction, in check mode, that is no failure."""
    path = folder.path
    if path.exists() and not path.is_dir():
        raise UsageError(f"judge: {path} is a file, wanted a folder of samples")
    if folder.manifest.exists():
        return None
    ours = folder.begun_with() is not None or folder.journal.exists()
    if path.is_dir() and not ours and folder.training_files():
        return None
    if check:
        checks = Checks()
        checks.add("manifest", "n/a", "none yet", "one: the extraction writes it")
        return Outcome("judge", checks, {}, False, f"would judge {path}")
    if not path.is_dir():
        raise UsageError(f"judge: there is no folder {path}: extract into it, or name another")
    if ours:
        raise JobError(f"{path} has no manifest.json: the extraction in this folder did not finish; run it again")
    raise JobError(f"{path} holds no sample (no file whose name ends in pt) and no manifest.json: nothing to judge")


def run(spec: Spec, check: bool) -> Outcome:
    """Judge the folder; reads only, so ``check`` changes nothing."""
    folder = Folder(Path(spec.text("output")))
    asked = _asked(spec)
    spec.finish()
    if early := _nothing_to_judge(folder, check):
        return early
    checks = Checks()
    manifest = None
    if not folder.manifest.exists():
        checks.add("manifest", "n/a", "none", "one, as Aerie writes it: without it only the files' own form is judged")
    else:
        try:
            manifest = read(folder.manifest)
        except ManifestError as error:
            remedy = (
                "run the extraction again; a manifest.json that is not Aerie's: move it away, and the rest is judged"
            )
            text = f"manifest.json {error}"
            checks.add("manifest", "fail", text, "one as Aerie writes it", remedy, str(folder.manifest))
            return Outcome("judge", checks, {"output": str(folder.path)})
        checks.add("manifest", "pass", f"{len(manifest.samples)} samples", "one as Aerie writes it")
    found = contents(folder)
    files = manifest.samples if manifest else [Expected(name) for name in found.samples]
    contract = _contract(folder.path, files, manifest, asked)
    check_contents(checks, found, manifest)
    check_numbering(checks, found, manifest)
    _check_asked(checks, manifest, asked, contract)
    _check_count(checks, manifest, asked)
    began, cpu = time.monotonic(), time.process_time()
    totals = judge_files(folder.path, files, contract)
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    _check_files(checks, totals, len(files), manifest, contract)
    tokens = sum(totals.lengths)
    data: dict[str, Any] = {
        "output": str(folder.path),
        "samples": len(files),
        "tokens": tokens,
        "trainable": totals.trainable,
        "bytes": totals.size,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "layers": contract.labels,
        "hidden_size": contract.hidden_size,
        "statistics": totals.statistics.as_list(),
        "lengths": histogram(totals.lengths),
        "not_finite": totals.not_finite,
        **_check_coverage(checks, totals, manifest),
    }
    summary = f"{len(files):,} samples, {tokens:,} tokens judged ({totals.size / max(seconds, 1e-9) / 1e9:.2f} GB/s)"
    if reference := _reference(checks, folder, totals, manifest, asked):
        data["reference"] = reference
        data["largest_difference"] = reference["largest_median_row"]
        summary += (
            f"; {reference['files']} files differ from Transformers by {reference['largest_median_row']:.2%} "
            f"(median row) and {reference['largest_row']:.2%} (worst row) at most"
        )
    return Outcome("judge", checks, data, False, summary)

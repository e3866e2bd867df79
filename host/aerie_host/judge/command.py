"""``judge``: check the files of an extraction, by Aerie or by another program, and compare some with Transformers.

A property that cannot be judged is reported as not applicable, with the reason, and never as passed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host.folder import manifest as manifests
from aerie_host.folder.layout import OUTPUT, REMEDY, Folder
from aerie_host.judge import reference
from aerie_host.judge.expectation import JudgedFile, expect
from aerie_host.judge.file_checks import check_coverage, check_files
from aerie_host.judge.request import JudgeRequest, read_request
from aerie_host.judge.request_checks import check_count, check_request
from aerie_host.judge.sample_files import Totals, judge_files
from aerie_host.judge.sample_folder import check_contents, check_numbering, contents
from aerie_host.report.outcome import Outcome
from aerie_host.report.summaries import histogram
from aerie_host.shared.checks import Checks
from aerie_host.shared.refusal import Refusal, UsageRefusal

if TYPE_CHECKING:
    from aerie_host.folder.manifest import Manifest
    from aerie_host.spec import Spec

SECTION = "judge"


def run(spec: Spec, check: bool) -> Outcome:
    """Judge the folder; reads only, so ``check`` changes nothing."""
    folder = Folder(Path(spec.text("output")))
    request = read_request(spec)
    spec.finish()
    if early := _nothing_to_judge(folder, check):
        return early
    checks = Checks()
    manifest = None
    if not folder.manifest.exists():
        wanted = "one as Aerie writes it; without it only the form of each file is judged"
        checks.add(manifests.NAME, "n/a", "none", wanted)
    else:
        try:
            manifest = manifests.read(folder.manifest)
        except Refusal as refusal:
            checks.append(refusal.as_check())
            return Outcome(SECTION, checks, {"output": str(folder.path)})
        checks.add(manifests.NAME, "pass", f"{len(manifest.samples)} samples", manifests.WANTED)
    return _judge(checks, folder, manifest, request)


def _judge(checks: Checks, folder: Folder, manifest: Manifest | None, request: JudgeRequest) -> Outcome:
    """Judge a folder whose manifest, if it has one, is valid."""
    found = contents(folder)
    if manifest is None:
        files = [JudgedFile(name) for name in found.samples]
    else:
        files = [JudgedFile(record.file, record) for record in manifest.samples]
    expectation = expect(folder.path, files, manifest, request)
    check_contents(checks, found, manifest)
    check_numbering(checks, found, manifest)
    check_request(checks, manifest, request, expectation)
    check_count(checks, manifest, request)
    began, cpu = time.monotonic(), time.process_time()
    totals = judge_files(folder.path, files, expectation)
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    check_files(checks, totals, len(files), manifest, expectation)
    tokens = sum(totals.lengths)
    data: dict[str, Any] = {
        "output": str(folder.path),
        "samples": len(files),
        "tokens": tokens,
        "trainable": totals.trainable,
        "bytes": totals.size,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "layers": expectation.labels,
        "hidden_size": expectation.hidden_size,
        "statistics": totals.statistics.as_list(),
        "lengths": histogram(totals.lengths),
        "not_finite": totals.not_finite,
        **check_coverage(checks, totals, manifest),
    }
    summary = f"{len(files):,} samples, {tokens:,} tokens judged ({totals.size / max(seconds, 1e-9) / 1e9:.2f} GB/s)"
    if comparison := _compare_with_transformers(checks, folder, totals, manifest, request):
        data["reference"] = comparison
        data["largest_difference"] = comparison["largest_median_row"]
        summary += (
            f"; {comparison['files']} files differ from Transformers by {comparison['largest_median_row']:.2%} "
            f"(median row) and {comparison['largest_row']:.2%} (worst row) at most"
        )
    return Outcome(SECTION, checks, data, False, summary)


def _compare_with_transformers(
    checks: Checks, folder: Folder, totals: Totals, manifest: Manifest | None, request: JudgeRequest
) -> dict[str, Any] | None:
    """Compare some files with Transformers, where that was requested and the model is known."""
    if not request.reference_samples:
        checks.add(reference.CHECK, "n/a", "not requested", "requested for small models only")
        return None
    model, reason = reference.find_model(manifest, request.model)
    sound = [record for record in manifest.samples if record.file not in totals.flawed] if manifest else []
    if model is None or manifest is None or not sound:
        checks.add(reference.CHECK, "n/a", "not compared", reason or "a file without a flaw: there is none")
        return None
    chosen = reference.choose(sound, request.reference_samples)
    return reference.compare(checks, folder, chosen, manifest.layers, model, request.trust_remote_code)


def _nothing_to_judge(folder: Folder, check: bool) -> Outcome | None:
    """Refuse a folder that cannot be judged. In check mode a folder without an extraction is no failure."""
    path = folder.path
    if path.exists() and not path.is_dir():
        raise UsageRefusal(OUTPUT, f"{path} is a file", "a folder of samples", REMEDY)
    if folder.manifest.exists():
        return None
    ours = folder.begun_with() is not None or folder.journal.exists()
    if path.is_dir() and not ours and folder.training_files():
        return None
    if check:
        checks = Checks()
        checks.add("manifest", "n/a", "none yet", "one: the extraction writes it")
        return Outcome(SECTION, checks, {}, False, f"would judge {path}")
    if not path.is_dir():
        found = f"there is no folder {path}"
        raise UsageRefusal(OUTPUT, found, "a folder of samples", f"extract into it (--tags extract), or {REMEDY}")
    if ours:
        found = f"{path} has no manifest.json: the extraction in this folder did not finish"
        raise Refusal(OUTPUT, found, "a finished extraction", "run the extraction again (--tags extract)")
    found = f"{path} holds no sample (no file whose name ends in pt) and no manifest.json"
    raise Refusal(OUTPUT, found, "a folder of samples", f"extract into it (--tags extract), or {REMEDY}")

"""``extract``: write the hidden states of every sample, once, and continue where an earlier run ended."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import TYPE_CHECKING, Any

from aerie_host.checkpoint import weights
from aerie_host.data.data_file import DataFile
from aerie_host.extract import ending, model_run
from aerie_host.extract.disk import require_disk
from aerie_host.extract.inputs import read_samples
from aerie_host.extract.job import ExtractionJob, read_job
from aerie_host.extract.progress import Progress, Watch, Watchdog, say
from aerie_host.extract.prometheus import CHECKING
from aerie_host.extract.result import make_manifest, report_data, written_checks
from aerie_host.folder import fingerprint as fingerprints
from aerie_host.folder import overwrite, resume
from aerie_host.folder.holds import hold_folder
from aerie_host.folder.layout import Folder
from aerie_host.report.outcome import Outcome
from aerie_host.shared.checks import Checks
from aerie_host.shared.durable import write_json
from aerie_host.shared.refusal import Refusal, UsageRefusal

if TYPE_CHECKING:
    from aerie_host.spec import Spec


def _finished_outcome(job: ExtractionJob, manifest: dict[str, Any]) -> Outcome:
    checks = Checks()
    count = len(manifest["samples"])
    checks.add("samples present and intact", "pass", f"{count} of {count}", f"{count} of {count}", file=str(job.output))
    data = {key: value for key, value in manifest.items() if key not in ("samples", "fingerprint")}
    data.update(nothing_to_do=True, samples=count, output=str(job.output), extracted=0, kept=count, redone={})
    message = f"nothing to extract: {count:,} samples, {manifest['tokens']:,} tokens are there and intact"
    return Outcome("extract", checks, data, False, message)


def _plan(job: ExtractionJob, folder: Folder, fingerprint: dict[str, Any]) -> Outcome | None:
    """The outcome when there is nothing to do, else None; ``Refusal`` for a folder that must not be touched."""
    if job.output.exists() and not job.output.is_dir():
        raise Refusal("output", f"{job.output} is a file", "a folder", "correct hidden_states_output_path")
    if job.overwrite:
        return None
    manifest = resume.finished_manifest(folder, fingerprint)
    if manifest is not None:
        return _finished_outcome(job, manifest)
    resume.refuse_other_inputs(folder, fingerprint)
    return None


def _work(job: ExtractionJob, folder: Folder, fingerprint: dict[str, Any]) -> Outcome:
    """Extract into the folder that this process holds."""
    overwrite.forget(folder)
    if not job.overwrite:
        resume.refuse_other_inputs(folder, fingerprint)
        overwrite.finish(folder)
    leftovers = folder.drop_temporaries()
    with contextlib.closing(Progress(job.progress or folder.state / "progress.json", job.prometheus)) as progress:
        watchdog = Watchdog(functools.partial(ending.give_up, progress))
        try:
            outcome = _write_samples(job, folder, fingerprint, Watch(progress, watchdog, job.batch_timeout))
        except BaseException:
            progress.phase("failed")
            raise
        finally:
            watchdog.rest()
        progress.phase("finished")
    outcome.data.update(leftovers_removed=len(leftovers))
    return outcome


def _write_samples(job: ExtractionJob, folder: Folder, fingerprint: dict[str, Any], watch: Watch) -> Outcome:
    """Read the data, keep the samples that are there, extract the rest, and report."""
    inputs = read_samples(job, watch)
    prepared, kept = inputs.prepared, resume.Kept()
    old = folder.samples() if job.overwrite else []
    if job.overwrite:
        resume.refuse_foreign_files(folder)
        overwrite.want(folder, fingerprint)
        say(f"{len(old)} samples there are removed when the first new one is computed")
    else:
        resume.refuse_foreign_files(folder, {sample.index for sample in prepared.samples})
        write_json(folder.fingerprint, fingerprint)
        kept = resume.keep_good(folder, watch.each(CHECKING, prepared.samples))
    todo = [sample for sample in prepared.samples if sample.index not in kept.records]
    say(f"{len(prepared.samples)} samples, {len(kept.records)} finished, {len(todo)} to do {kept.redone or ''}")
    watch.progress.plan(len(prepared.samples), sum(len(sample.input_ids) for sample in todo), len(kept.records))
    done = model_run.ModelRun()
    if todo:
        if not job.overwrite:
            # A manifest claims that everything is there, which is no longer true.
            folder.manifest.unlink(missing_ok=True)
        require_disk(job, todo, "before loading the model", overwrite.bytes_freed(old))
        done = model_run.run_model(job, folder, todo, watch)
    by_index = {**kept.records, **{record.index: record for record in done.records}}
    records = [by_index[sample.index] for sample in prepared.samples if sample.index in by_index]
    checks = written_checks(job, inputs, records, done)
    if not checks.failed:
        write_json(folder.manifest, make_manifest(job, fingerprint, inputs, records))
    data = report_data(job, inputs, records, done)
    data.update(
        fingerprint=fingerprints.digest(fingerprint), kept=len(kept.records), redone=kept.redone, overwritten=len(old)
    )
    tokens = sum(record.length for record in done.records)
    message = f"{len(done.records):,} samples, {tokens:,} tokens extracted"
    if done.seconds:
        message += f", {tokens / done.seconds:,.0f} tokens/s"
    message += f"; {len(kept.records):,} samples kept" if kept.records else ""
    return Outcome("extract", checks, data, bool(done.records), message)


def run(spec: Spec, check: bool) -> Outcome:
    """Extract; with ``check`` only plan: ``changed`` says whether there is work. ``overwrite`` always means work."""
    job = read_job(spec)
    folder = Folder(job.output, job.file_format)
    # The model and the data are local: nothing here may ask the network for them.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # A file that is no data and a model that is not whole are refused before time is spent.
    DataFile(job.data)
    weights.require_whole(job.model)
    fingerprint = job.fingerprint()
    planned = _plan(job, folder, fingerprint)
    if planned is not None:
        return planned
    if check:
        checks = Checks()
        found = f"the model {job.model} is whole, the data {job.data} can be read"
        checks.add("what the extraction reads", "pass", found, "a whole model, and data")
        checks.add("extraction", "n/a", "work to do", "work to do")
        return Outcome("extract", checks, {"output": str(job.output)}, True, f"would extract into {job.output}")
    if sys.flags.optimize:
        raise UsageRefusal("Python", "option -O", "none: libraries check their inputs with assert", "run without -O")
    ending.stop_on_signals()
    try:
        folder.create()
        with hold_folder(folder):
            return _work(job, folder, fingerprint)
    except ending.Stopped as stopped:
        raise Refusal("extraction", stopped, remedy="run again to continue") from None

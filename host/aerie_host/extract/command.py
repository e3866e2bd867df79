"""``extract``: write the hidden states of every sample, once, and continue where an earlier run ended."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host.checkpoint import weights
from aerie_host.data.conversations import Data
from aerie_host.data.data_file import DataFile
from aerie_host.data.samples import Encoder, Limits, Sample, listed, prepare
from aerie_host.extract import schedule
from aerie_host.extract.job import ExtractionJob, read_job
from aerie_host.extract.progress import Progress, Watch, Watchdog, say
from aerie_host.extract.prometheus import CHECKING, READING
from aerie_host.extract.result import Done, Inputs, make_manifest, report_data, written_checks
from aerie_host.folder import fingerprint as fingerprints
from aerie_host.folder import overwrite, resume
from aerie_host.folder.holds import hold_folder
from aerie_host.folder.layout import Folder
from aerie_host.report.outcome import JobError, Outcome, UsageError
from aerie_host.shared.checks import Checks
from aerie_host.shared.durable import write_json

if TYPE_CHECKING:
    from aerie_host.extract.engine import StatesSource
    from aerie_host.spec import Spec


# No error: no `except Exception`, of a template or a library, may take it for one.
class _Stopped(BaseException):
    """The job was asked to end."""


def _stop(number: int, _frame: object) -> None:
    raise _Stopped(f"stopped by {signal.Signals(number).name}; what was finished stays, running again continues")


# What a job that ends itself may take for its last words.
LAST_WORDS_SECONDS = 10.0


def _give_up(progress: Progress, message: str) -> None:
    """End a process that hangs where no exception reaches: in a library's wait."""
    # Should what hangs hold up this thread too, then without words: this needs neither Python's lock nor a stream's.
    nowhere = Path(os.devnull).open("w")  # noqa: SIM115 - it stays open to the end
    faulthandler.dump_traceback_later(LAST_WORDS_SECONDS, exit=True, file=nowhere)
    progress.last_words()
    print(f"aerie: {message}; stacks of all threads follow", file=sys.stderr, flush=True)
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
    os._exit(1)


def _finished_outcome(job: ExtractionJob, manifest: dict[str, Any]) -> Outcome:
    checks = Checks()
    count = len(manifest["samples"])
    checks.add("samples present and intact", "pass", f"{count} of {count}", f"{count} of {count}", file=str(job.output))
    data = {key: value for key, value in manifest.items() if key not in ("samples", "fingerprint")}
    data.update(nothing_to_do=True, samples=count, output=str(job.output), extracted=0, kept=count, redone={})
    message = f"nothing to extract: {count:,} samples, {manifest['tokens']:,} tokens are there and intact"
    return Outcome("extract", checks, data, False, message)


def _plan(job: ExtractionJob, folder: Folder, fingerprint: dict[str, Any]) -> Outcome | None:
    """The outcome when nothing has to be done; refuses what must not be touched."""
    if job.output.exists() and not job.output.is_dir():
        raise JobError(f"{job.output} is a file, wanted a folder for the samples")
    if job.overwrite:
        return None
    manifest = resume.finished_manifest(folder, fingerprint)
    if manifest is not None:
        return _finished_outcome(job, manifest)
    resume.refuse_other_inputs(folder, fingerprint)
    return None


def _load_tokenizer(job: ExtractionJob) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(job.model, trust_remote_code=job.trust_remote_code)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        found = f"{type(error).__name__}: {lines[0]}"
        raise JobError(f"the tokenizer in {job.model} cannot be loaded: are all of its files there? {found}") from error


def read_samples(job: ExtractionJob, watch: Watch) -> Inputs:
    """Encode the data; ``JobError`` when more rows give no sample than may."""
    data = Data(job.data, job.shard, job.max_samples)
    encoders: list[Encoder] = []

    def encoder() -> Encoder:
        if not encoders:
            encoders.append(Encoder(_load_tokenizer(job)))
        return encoders[0]

    vocabulary = job.facts.vocab_size
    limits = Limits(job.max_length, job.on_too_long, vocabulary)
    prepared = prepare(watch.each(READING, data), encoder, limits)
    if len(prepared.skipped) > job.max_skipped:
        raise JobError(
            f"{job.data}: {len(prepared.skipped)} {data.file.unit}s give no sample, at most {job.max_skipped} may: "
            f"{listed(prepared.skipped)}"
        )
    if not prepared.samples:
        raise JobError(f"{job.data} gives no sample" + (f" in shard {job.shard}" if job.shard.count > 1 else ""))
    strange = [sample for sample in prepared.samples if max(sample.input_ids) >= vocabulary]
    if strange:
        raise JobError(
            f"{data.file.unit} {strange[0].line}: token {max(strange[0].input_ids)} is outside the model's {vocabulary}"
        )
    return Inputs(prepared, data, encoders[0] if encoders else None)


def require_disk(job: ExtractionJob, samples: list[Sample], when: str, freed: int = 0) -> int:
    """Bytes that the samples will take; ``JobError`` when they do not fit beside the reserve.

    ``freed``: bytes that come free before the first of them is written.
    """
    needed = schedule.bytes_on_disk(samples, len(job.layers), job.facts.hidden_size)
    what = f"{len(samples)} samples take {needed / 1e9:.2f} GB, " if samples else ""
    more = f", with the samples that they replace {freed / 1e9:.2f} GB more," if freed else ""
    free = shutil.disk_usage(job.output).free
    if free + freed < needed + job.disk_reserve:
        raise JobError(
            f"{when}: {what}{free / 1e9:.2f} GB are free in {job.output}{more} "
            f"and {job.disk_reserve / 1e9:.2f} GB stay free: make room, running again continues"
        )
    return needed


def _load(job: ExtractionJob, folder: Folder) -> StatesSource:
    from aerie_host.extract.engine import StatesSource, VllmEngine
    from aerie_host.extract.generator import EngineLimits, make_generator
    from aerie_host.extract.writers import warm_up

    warm_up()
    generator = make_generator(
        job.model,
        job.layers,
        EngineLimits(job.max_length, job.token_budget),
        gpu_memory_utilization=job.gpu_memory_utilization,
        tensor_parallel_size=job.tensor_parallel_size,
        trust_remote_code=job.trust_remote_code,
    )
    return StatesSource(VllmEngine(generator), folder, job.layers, job.writers)


def _run_model(job: ExtractionJob, folder: Folder, todo: list[Sample], watch: Watch) -> Done:
    """Load the model and run it over ``todo``; files and journal are the writers' work, here they are counted."""
    done, progress, watchdog = Done(), watch.progress, watch.watchdog
    progress.phase("loading the model")
    began = time.monotonic()
    watchdog.expect("loading the model", job.start_timeout)
    source = _load(job, folder)
    progress.waited_seconds = lambda: source.waited_seconds
    try:
        done.start_seconds = time.monotonic() - began
        say(f"model loaded in {done.start_seconds:.1f} s")
        progress.phase("extracting")
        watchdog.expect("one step", job.batch_timeout)
        with contextlib.closing(source.extract(schedule.order(todo, job.token_budget))) as finished:
            for entries in finished:
                watchdog.expect("one step", job.batch_timeout)
                if entries:
                    done.count(entries, progress)
                    require_disk(job, [], "while running")
        done.seconds = progress.extracting_seconds
    except BaseException as error:
        # Should the engine not end, this would be lost.
        say(f"ending the engine, because of {type(error).__name__}: {error}")
        raise
    finally:
        watchdog.expect("ending the engine", job.batch_timeout)
        source.close()
        watchdog.rest()
    done.waited_seconds = source.waited_seconds
    return done


def _work(job: ExtractionJob, folder: Folder, fingerprint: dict[str, Any]) -> Outcome:
    """Everything after the folder is held."""
    overwrite.forget(folder)
    if not job.overwrite:
        resume.refuse_other_inputs(folder, fingerprint)
        overwrite.finish(folder)
    leftovers = folder.drop_temporaries()
    with contextlib.closing(Progress(job.progress or folder.state / "progress.json", job.prometheus)) as progress:
        watchdog = Watchdog(functools.partial(_give_up, progress))
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
    """Read the data, keep what is there of it, extract the rest, and say what is there now."""
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
    done = Done()
    if todo:
        if not job.overwrite:
            # A manifest says that everything is there; it is not.
            folder.manifest.unlink(missing_ok=True)
        require_disk(job, todo, "before loading the model", overwrite.bytes_freed(old))
        done = _run_model(job, folder, todo, watch)
    by_index = {**kept.records, **{entry.index: entry for entry in done.entries}}
    entries = [by_index[sample.index] for sample in prepared.samples if sample.index in by_index]
    checks = written_checks(job, inputs, entries, done)
    if not checks.failed:
        write_json(folder.manifest, make_manifest(job, fingerprint, inputs, entries))
    data = report_data(job, inputs, entries, done)
    data.update(
        fingerprint=fingerprints.digest(fingerprint), kept=len(kept.records), redone=kept.redone, overwritten=len(old)
    )
    tokens = sum(entry.length for entry in done.entries)
    message = f"{len(done.entries):,} samples, {tokens:,} tokens extracted"
    if done.seconds:
        message += f", {tokens / done.seconds:,.0f} tokens/s"
    message += f"; {len(kept.records):,} samples kept" if kept.records else ""
    return Outcome("extract", checks, data, bool(done.entries), message)


def run(spec: Spec, check: bool) -> Outcome:
    """Extract; with ``check`` only plan: ``changed`` says whether there is work. ``overwrite`` always means work."""
    job = read_job(spec)
    folder = Folder(job.output, job.file_format)
    # The model and the data are local: nothing here may ask the network for them.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # What is no data or not all of a model is refused before anything is spent.
    DataFile(job.data)
    weights.require_whole(job.model)
    fingerprint = job.fingerprint()
    planned = _plan(job, folder, fingerprint)
    if planned is not None:
        return planned
    if check:
        checks = Checks()
        there = f"the model {job.model} is whole, the data {job.data} can be read"
        checks.add("what the extraction reads", "pass", there, "a whole model, and data")
        checks.add("extraction", "n/a", "work to do", "work to do")
        return Outcome("extract", checks, {"output": str(job.output)}, True, f"would extract into {job.output}")
    if sys.flags.optimize:
        raise UsageError("extract: do not run with -O: libraries check their inputs with assert")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        folder.create()
        with hold_folder(folder):
            return _work(job, folder, fingerprint)
    except _Stopped as stopped:
        raise JobError(str(stopped)) from None

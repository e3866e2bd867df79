"""The results of an extraction: its manifest, the checks of its bookkeeping, and its numbers for the report."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from aerie_host.data.samples import listed
from aerie_host.extract import schedule
from aerie_host.folder import manifest
from aerie_host.shared.checks import Checks
from aerie_host.shared.sample_size import bytes_per_token

if TYPE_CHECKING:
    from aerie_host.extract.inputs import Inputs
    from aerie_host.extract.job import ExtractionJob
    from aerie_host.extract.model_run import ModelRun
    from aerie_host.folder.record import SampleRecord


def make_manifest(
    job: ExtractionJob, fingerprint: dict[str, Any], inputs: Inputs, records: list[SampleRecord]
) -> dict[str, Any]:
    """The content of ``manifest.json``."""
    return manifest.make(
        fingerprint,
        model=job.model,
        hidden_size=job.facts.hidden_size,
        data=manifest.DataDescription(job.data, inputs.data.description, inputs.data.file.unit),
        loss_mask=inputs.method,
        records=records,
        skipped=inputs.prepared.skipped,
        truncated=inputs.prepared.truncated,
    )


def _input_checks(checks: Checks, job: ExtractionJob, inputs: Inputs) -> None:
    """The format that the data was read as, and what of it gave no sample or was not read."""
    tally, file = inputs.data.tally, str(job.data)
    checks.add("format of the data", "pass", inputs.data.description, "JSON lines, a JSON array or parquet", file=file)
    unread = len(inputs.prepared.skipped)
    text = f"{unread}: {listed(inputs.prepared.skipped)}" if unread else "0"
    checks.add(
        f"{inputs.data.file.unit}s without a sample",
        "warn" if unread else "pass",
        text,
        f"at most {job.max_skipped}",
        file=file,
    )
    for name, counts, remedy in (
        ("unknown roles", tally.unknown_roles, "such conversations give no sample: rename the roles"),
        ("keys of messages that are not read", tally.unread_keys, "make sure that nothing is lost without them"),
        ("keys of rows that are not read", tally.unread_row_keys, "make sure that they are no part of a conversation"),
    ):
        found = ", ".join(f"{key} ({count})" for key, count in sorted(counts.items()))
        checks.add(name, "warn" if counts else "pass", found or "none", "none", remedy if counts else "", file)
    empty = tally.empty_answers
    remedy = "the draft model learns from these to end at once: leave out their rows unless it should"
    checks.add("answers that are empty", "warn" if empty else "pass", empty, 0, remedy if empty else "", file)
    left_out = inputs.encoder.reasoning_left_out if inputs.encoder else 0
    remedy = "give the tokenizer a chat template that renders it, if the draft model should learn it"
    status = "warn" if left_out else "pass"
    checks.add(
        "reasoning that the chat template leaves out",
        status,
        f"of {left_out} answers",
        "none",
        remedy if left_out else "",
    )


def written_checks(job: ExtractionJob, inputs: Inputs, records: list[SampleRecord], written: ModelRun) -> Checks:
    """Checks of one run's own bookkeeping; the stage ``judge`` looks into the files."""
    checks, prepared = Checks(), inputs.prepared
    wanted, found = len(prepared.samples), len(records)
    checks.require(
        "samples written", wanted == found, f"{found} of {wanted}", f"{wanted} of {wanted}", file=str(job.output)
    )
    _input_checks(checks, job, inputs)
    last = job.facts.num_layers - 1
    checks.add(
        "last layer asked is the model's last",
        "pass" if job.layers[-1] == last else "warn",
        job.layers[-1],
        last,
        "training takes the last of these layers for the target model's own last states",
    )
    estimate = schedule.bytes_on_disk(prepared.samples, len(job.layers), job.facts.hidden_size)
    content = prepared.tokens * bytes_per_token(len(job.layers), job.facts.hidden_size)
    size = sum(record.bytes for record in records)
    # A file that holds a whole batch instead of one sample shows here, and so does a wrong estimate of the disk.
    bounds = f"{content} to {estimate}"
    checks.require("bytes written", content <= size <= estimate, size, bounds, "files hold other rows than their own")
    lengths = collections.Counter(len(sample.input_ids) for sample in prepared.samples)
    same = lengths == collections.Counter(record.length for record in records)
    checks.require("lengths written", same, "as encoded" if same else "others", "as encoded")
    if written.records:
        tokens = sum(record.length for record in written.records)
        checks.add("tokens per second", "pass", round(tokens / max(written.seconds, 1e-9), 1), "reported, not enforced")
    return checks


def report_data(job: ExtractionJob, inputs: Inputs, records: list[SampleRecord], done: ModelRun) -> dict[str, Any]:
    """The numbers of one run for the report."""
    tokens = sum(record.length for record in done.records)
    return {
        "output": str(job.output),
        "samples": len(records),
        "tokens": sum(record.length for record in records),
        "trainable": sum(record.trainable for record in records),
        "bytes": sum(record.bytes for record in records),
        "layers": job.layers,
        "hidden_size": job.facts.hidden_size,
        "extracted": len(done.records),
        "nothing_to_do": False,
        "tokens_per_s": round(tokens / done.seconds, 1) if done.seconds else None,
        "throughput": done.throughput.points(),
        "start_seconds": round(done.start_seconds, 1),
        "seconds": round(done.seconds, 1),
        "waited_seconds": round(done.waited_seconds, 1),
        "shard": str(job.shard),
        **inputs.as_data(),
    }

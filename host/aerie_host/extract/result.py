"""What an extraction says of itself: the manifest, the checks of its bookkeeping, and the numbers of the report."""

from __future__ import annotations

import collections
import dataclasses
import time
from typing import TYPE_CHECKING, Any

from aerie_host.data.conversations import TOKENS
from aerie_host.data.samples import Encoder, Prepared, listed
from aerie_host.extract import schedule
from aerie_host.extract.progress import SAY_EVERY_SECONDS, Progress, say
from aerie_host.folder import manifest
from aerie_host.report.summaries import Throughput
from aerie_host.shared.checks import Checks
from aerie_host.shared.progress import progress_line
from aerie_host.shared.sample_size import bytes_per_token

if TYPE_CHECKING:
    from aerie_host.data.conversations import Data
    from aerie_host.extract.job import ExtractionJob
    from aerie_host.folder.record import SampleRecord


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What the data gave: samples, what its rows were, and what made them tokens (nothing, for rows of token ids)."""

    prepared: Prepared
    data: Data
    encoder: Encoder | None

    @property
    def method(self) -> str:
        """How loss masks came about, in words."""
        given = "given with the token ids" if self.data.tally.shapes[TOKENS] else ""
        if self.data.tally.without_mask:
            given += f" ({self.data.tally.without_mask} rows without a mask: every token is trained on)"
        return "; ".join(filter(None, [self.encoder.method if self.encoder else "", given]))

    def as_data(self) -> dict[str, Any]:
        """The numbers for the report."""
        tally = self.data.tally
        return {
            "format": self.data.description,
            "loss_mask": self.method,
            "unknown_roles": dict(tally.unknown_roles),
            "unread_keys": dict(tally.unread_keys),
            "unread_row_keys": dict(tally.unread_row_keys),
            "empty_answers": tally.empty_answers,
            "reasoning_left_out": self.encoder.reasoning_left_out if self.encoder else 0,
            "skipped": [str(entry) for entry in self.prepared.skipped],
            "truncated": [str(entry) for entry in self.prepared.truncated],
        }


@dataclasses.dataclass
class Done:
    """What one run extracted, and how long that took."""

    entries: list[SampleRecord] = dataclasses.field(default_factory=list)
    start_seconds: float = 0.0
    seconds: float = 0.0
    waited_seconds: float = 0.0
    throughput: Throughput = dataclasses.field(default_factory=Throughput)
    _said: float = 0.0

    def count(self, entries: list[SampleRecord], progress: Progress) -> None:
        """Take in finished samples; say how far the job is, now and then."""
        tokens = sum(entry.length for entry in entries)
        self.entries += entries
        progress.add(len(entries), tokens, sum(entry.bytes for entry in entries))
        self.throughput.add(progress.extracting_seconds, tokens)
        state = progress.state
        if time.monotonic() - self._said > SAY_EVERY_SECONDS or state["samples"] == state["total"]:
            self._said = time.monotonic()
            say(progress_line(state))


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
    """What the data was taken for, and what of it gave no sample or was not read."""
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
        ("keys of messages that are not read", tally.unread_keys, "see to it that they change nothing"),
        ("keys of rows that are not read", tally.unread_row_keys, "see to it that they are no part of a conversation"),
    ):
        found = ", ".join(f"{key} ({count})" for key, count in sorted(counts.items()))
        checks.add(name, "warn" if counts else "pass", found or "none", "none", remedy if counts else "", file)
    empty = tally.empty_answers
    remedy = "of these the draft model learns to end at once: leave out their rows, unless it shall"
    checks.add("answers that are empty", "warn" if empty else "pass", empty, 0, remedy if empty else "", file)
    left_out = inputs.encoder.reasoning_left_out if inputs.encoder else 0
    remedy = "give the tokenizer a chat template that renders it, if the draft model shall learn it"
    status = "warn" if left_out else "pass"
    checks.add(
        "reasoning that the chat template leaves out",
        status,
        f"of {left_out} answers",
        "none",
        remedy if left_out else "",
    )


def written_checks(job: ExtractionJob, inputs: Inputs, entries: list[SampleRecord], written: Done) -> Checks:
    """Checks of one run's own bookkeeping; the judge looks into the files."""
    checks, prepared = Checks(), inputs.prepared
    asked, found = len(prepared.samples), len(entries)
    checks.require(
        "samples written", asked == found, f"{found} of {asked}", f"{asked} of {asked}", file=str(job.output)
    )
    _input_checks(checks, job, inputs)
    last = job.facts.num_layers - 1
    checks.add(
        "last layer asked is the model's last",
        "pass" if job.layers[-1] == last else "warn",
        job.layers[-1],
        last,
        "training takes the last one asked for the target model's own last states",
    )
    estimate = schedule.bytes_on_disk(prepared.samples, len(job.layers), job.facts.hidden_size)
    rows = prepared.tokens * bytes_per_token(len(job.layers), job.facts.hidden_size)
    size = sum(entry.bytes for entry in entries)
    # Views of a batch saved whole would show here, as would a wrong estimate of the disk needed.
    wanted = f"{rows} to {estimate}"
    checks.require("bytes written", rows <= size <= estimate, size, wanted, "files hold other rows than their own")
    lengths = collections.Counter(len(sample.input_ids) for sample in prepared.samples)
    same = lengths == collections.Counter(entry.length for entry in entries)
    checks.require("lengths written", same, "as encoded" if same else "others", "as encoded")
    if written.entries:
        tokens = sum(entry.length for entry in written.entries)
        checks.add("tokens per second", "pass", round(tokens / max(written.seconds, 1e-9), 1), "reported, not enforced")
    return checks


def report_data(job: ExtractionJob, inputs: Inputs, entries: list[SampleRecord], done: Done) -> dict[str, Any]:
    """The numbers of one run for the report."""
    tokens = sum(entry.length for entry in done.entries)
    return {
        "output": str(job.output),
        "samples": len(entries),
        "tokens": sum(entry.length for entry in entries),
        "trainable": sum(entry.trainable for entry in entries),
        "bytes": sum(entry.bytes for entry in entries),
        "layers": job.layers,
        "hidden_size": job.facts.hidden_size,
        "extracted": len(done.entries),
        "nothing_to_do": False,
        "tokens_per_s": round(tokens / done.seconds, 1) if done.seconds else None,
        "throughput": done.throughput.points(),
        "start_seconds": round(done.start_seconds, 1),
        "seconds": round(done.seconds, 1),
        "waited_seconds": round(done.waited_seconds, 1),
        "shard": str(job.shard),
        **inputs.as_data(),
    }

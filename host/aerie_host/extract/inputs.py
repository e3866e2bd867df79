"""The samples of an extraction: its data, read and tokenized."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from aerie_host.data.conversations import TOKENS, DataRows
from aerie_host.data.samples import Encoder, Limits, Prepared, listed, prepare
from aerie_host.extract.prometheus import READING
from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from aerie_host.extract.job import ExtractionJob
    from aerie_host.extract.progress import Watch


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The samples of the data, its rows, and the encoder that tokenized them (None where all rows hold token ids)."""

    prepared: Prepared
    data: DataRows
    encoder: Encoder | None

    @property
    def method(self) -> str:
        """The origin of the loss masks, for the report."""
        method = "given with the token ids" if self.data.tally.shapes[TOKENS] else ""
        if self.data.tally.without_mask:
            method += f" ({self.data.tally.without_mask} rows without a mask: every token is trained on)"
        return "; ".join(filter(None, [self.encoder.method if self.encoder else "", method]))

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
            "skipped": [str(row) for row in self.prepared.skipped],
            "truncated": [str(row) for row in self.prepared.truncated],
        }


def _load_tokenizer(job: ExtractionJob) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(job.model, trust_remote_code=job.trust_remote_code)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        found = f"that in {job.model} cannot be loaded: {type(error).__name__}: {lines[0]}"
        raise Refusal("tokenizer", found, "one that Transformers loads", "fetch the model again, whole") from error


def read_samples(job: ExtractionJob, watch: Watch) -> Inputs:
    """Read and tokenize the data; ``Refusal`` when more rows give no sample than may, or none does."""
    data = DataRows(job.data, job.shard, job.max_samples)
    encoders: list[Encoder] = []

    def encoder() -> Encoder:
        if not encoders:
            encoders.append(Encoder(_load_tokenizer(job)))
        return encoders[0]

    vocabulary = job.facts.vocab_size
    limits = Limits(job.max_length, job.on_too_long, vocabulary)
    prepared = prepare(watch.each(READING, data), encoder, limits)
    unit, file = data.file.unit, str(job.data)
    if len(prepared.skipped) > job.max_skipped:
        raise Refusal(
            "data",
            f"{job.data}: {len(prepared.skipped)} {unit}s give no sample, at most {job.max_skipped} may: "
            f"{listed(prepared.skipped)}",
            remedy=f"correct these {unit}s, or allow them with hidden_states_max_skipped",
            file=file,
        )
    if not prepared.samples:
        where = f" in shard {job.shard}" if job.shard.count > 1 else ""
        raise Refusal("data", f"{job.data} gives no sample{where}", "at least one", file=file)
    outside = [sample for sample in prepared.samples if max(sample.input_ids) >= vocabulary]
    if outside:
        token = max(outside[0].input_ids)
        found = f"{unit} {outside[0].line} of {job.data} holds token {token}"
        raise Refusal("data", found, f"tokens below {vocabulary}, the size of the model's vocabulary", file=file)
    return Inputs(prepared, data, encoders[0] if encoders else None)

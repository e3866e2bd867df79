"""Turn rows into samples: chat template, tokens, loss mask, length. Rows without a sample are listed with a reason."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from aerie_host.data.loss_mask import (
    TemplateRefusedError,
    assistant_spans,
    left_out,
    mask_by_offsets,
    mask_by_prefix_tokens,
    refuse_lost_calls,
)
from aerie_host.data.row_kinds import SURROGATE, Conversation, Message, Origin, Skipped, TokenRow
from aerie_host.report.wording import several
from aerie_host.shared.digests import sha256_json
from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ON_TOO_LONG = ("error", "truncate", "skip")
# Part of an extraction's fingerprint. Raise it when the same data gives other tokens or masks than before.
SAMPLE_RULES = 3
LISTED = 20
TEMPLATE = "chat template"
REMEDY = "give the model's tokenizer_config.json a chat_template, or use data with token ids"


@dataclasses.dataclass(frozen=True)
class Sample(Origin):
    """One sample: ``input_ids`` and ``loss_mask`` of the same length (tokens), ready for the target model."""

    input_ids: list[int]
    loss_mask: list[int]

    def __str__(self) -> str:
        return f"sample {self.index} ({self.unit} {self.line})"

    @property
    def trainable(self) -> int:
        """How many tokens the loss mask marks."""
        return sum(self.loss_mask)

    @property
    def digest(self) -> str:
        """sha256 of token ids and loss mask, hexadecimal; ``tokens_sha256`` in the record."""
        return sha256_json([self.input_ids, self.loss_mask])


def has_generation_markers(template: str) -> bool:
    """Whether the chat template marks the text that the assistant generates."""
    return re.search(r"\{%-?\s*generation\s*-?%\}", template) is not None


class Encoder:
    """A Transformers tokenizer with its chat template; ``Refusal`` when it has no usable template."""

    def __init__(self, tokenizer: Any) -> None:
        if not tokenizer.chat_template:
            found = "the model's tokenizer has no chat template: conversations cannot be turned into tokens"
            raise Refusal(TEMPLATE, found, "one", REMEDY)
        if not isinstance(tokenizer.chat_template, str):
            found = "the model's tokenizer has several chat templates, and none of them is the default"
            raise Refusal(TEMPLATE, found, "one default", REMEDY)
        self._tokenizer = tokenizer
        # Transformers finds the marked tokens by offsets, which only fast tokenizers have.
        self._marked = has_generation_markers(tokenizer.chat_template) and tokenizer.is_fast
        added = tokenizer.added_tokens_decoder.values()
        self._specials = sorted({str(token) for token in added if token.special} | set(tokenizer.all_special_tokens))
        # How many answers had a reasoning that the template did not render.
        self.reasoning_left_out = 0

    @property
    def method(self) -> str:
        """How loss masks are made, in words, for the manifest."""
        if self._marked:
            return "generation markers of the chat template"
        return "assistant spans proven by rendering, with the end-of-turn token"

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def encode(self, messages: list[Message], tools: list[dict[str, Any]] | None = None) -> tuple[list[int], list[int]]:
        """Token ids and loss mask of one conversation; ``TemplateRefusedError`` when no mask can be proven."""

        def render(messages: list[Message], add_generation_prompt: bool) -> str:
            return str(
                self._tokenizer.apply_chat_template(
                    messages, tools=tools, tokenize=False, add_generation_prompt=add_generation_prompt
                )
            )

        try:
            full = render(messages, False)
        except Exception as error:
            raise TemplateRefusedError(f"the chat template refuses this conversation: {error}") from error
        if half := SURROGATE.search(full):
            raise TemplateRefusedError(f"its text has {half[0]!a}, one half of a character: no tokenizer takes it")
        if self._marked:
            both = self._tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
            )
            found = list(both["input_ids"]), [int(value) for value in both["assistant_masks"]]
        else:
            found = self._prove(render, full, messages)
        refuse_lost_calls(render, full, messages)
        self.reasoning_left_out += left_out(full, messages)
        return found

    def _prove(self, render: Any, full: str, messages: list[Message]) -> tuple[list[int], list[int]]:
        spans = assistant_spans(render, full, messages, self._specials)
        if not self._tokenizer.is_fast:
            tokens = self._encode(full)
            return tokens, mask_by_prefix_tokens(self._encode, full, tokens, spans)
        encoded = self._tokenizer(full, add_special_tokens=False, return_offsets_mapping=True)
        return list(encoded["input_ids"]), mask_by_offsets(encoded["offset_mapping"], spans)


@dataclasses.dataclass
class Prepared:
    """All samples in the order of the data, and the rows that gave no sample or a cut one."""

    samples: list[Sample] = dataclasses.field(default_factory=list)
    skipped: list[Skipped] = dataclasses.field(default_factory=list)
    truncated: list[Skipped] = dataclasses.field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens of all samples."""
        return sum(len(sample.input_ids) for sample in self.samples)


class _TooLongError(Exception):
    """The sample is too long and may not be cut."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of samples.

    Attributes:
        max_length: most tokens of a sample.
        on_too_long: what happens to longer ones, one of ``ON_TOO_LONG``.
        vocabulary: token ids are below this; 0 where it is not known.
    """

    max_length: int
    on_too_long: str = "error"
    vocabulary: int = 0


def _tokens(row: Conversation | TokenRow, encoder: Callable[[], Encoder], vocabulary: int) -> tuple[Any, Any, str]:
    """Token ids and loss mask; or neither, and the reason."""
    if isinstance(row, TokenRow):
        most = max(row.input_ids)
        note = f"token {most} is outside the model's vocabulary of {vocabulary}" if 0 < vocabulary <= most else ""
        return row.input_ids, row.loss_mask, note
    try:
        ids, mask = encoder().encode(row.messages, row.tools)
    except TemplateRefusedError as error:
        return None, None, str(error)
    return ids, mask, "" if len(ids) == len(mask) else f"{len(ids)} tokens but {len(mask)} mask values"


def _sample(row: Conversation | TokenRow, encoder: Callable[[], Encoder], limits: Limits) -> tuple[Sample | None, str]:
    """The sample or None, and the reason why it was skipped or cut."""
    input_ids, loss_mask, problem = _tokens(row, encoder, limits.vocabulary)
    if problem:
        return None, problem
    note, longest = "", limits.max_length
    if len(input_ids) > longest:
        note = f"{len(input_ids)} tokens, longer than {longest}"
        if limits.on_too_long != "truncate":
            raise _TooLongError(note)
        input_ids, loss_mask = input_ids[:longest], loss_mask[:longest]
    # Training takes the loss of a token from the state before it.
    if not any(loss_mask[1:]):
        but = " but the first, which training leaves out" if any(loss_mask) else ""
        return None, f"no trainable token{but}" + (f" in the first {longest}" if note else "")
    return Sample(row.index, row.line, row.id, input_ids, loss_mask, unit=row.unit), note


def prepare(
    rows: Iterable[Conversation | TokenRow | Skipped],
    encoder: Callable[[], Encoder],
    limits: Limits,
) -> Prepared:
    """Turn rows into samples.

    ``encoder`` is called for conversations only: token ids need no tokenizer. ``Refusal`` names the rows that are too
    long when ``on_too_long`` is ``error``.
    """
    done = Prepared()
    too_long: list[Skipped] = []
    for row in rows:
        if isinstance(row, Skipped):
            done.skipped.append(row)
            continue
        try:
            sample, note = _sample(row, encoder, limits)
        except _TooLongError as error:
            where = too_long if limits.on_too_long == "error" else done.skipped
            where.append(row.without_sample(str(error)))
            continue
        if sample is not None:
            done.samples.append(sample)
        if note:
            where = done.truncated if sample is not None else done.skipped
            where.append(row.without_sample(note))
    if too_long:
        found = f"{len(too_long)} samples are too long: {listed(too_long)}"
        remedy = "raise hidden_states_max_length, or set hidden_states_on_too_long to truncate or skip"
        raise Refusal("length of samples", found, f"at most {limits.max_length} tokens", remedy)
    return done


def listed(rows: list[Skipped]) -> str:
    """The rows in words: the first 20, and how many more there are."""
    return several(map(str, rows), LISTED)

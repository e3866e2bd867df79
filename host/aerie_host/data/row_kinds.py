"""The kinds of a row: a conversation, token ids, or a row that gives no sample. Each knows where it comes from."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

Message = dict[str, Any]

# JSON may escape halves of UTF-16's pairs.
SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a row or a sample comes from.

    Attributes:
        index: place of the row in the data, from 0.
        line: its line or row number in the file, from 1.
        id: its id in the data; empty when it has none.
        unit: what ``line`` counts: "line" or "row".
    """

    index: int
    line: int
    id: str
    unit: str = dataclasses.field(default="line", kw_only=True)

    def without_sample(self, reason: str) -> Skipped:
        """The same row as one that gives no sample, for this reason."""
        return Skipped(self.index, self.line, self.id, reason, unit=self.unit)


@dataclasses.dataclass(frozen=True)
class Conversation(Origin):
    """One conversation: its messages, and the tools that the assistant may call."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None


@dataclasses.dataclass(frozen=True)
class TokenRow(Origin):
    """One row of token ids with its loss mask, of the same length."""

    input_ids: list[int]
    loss_mask: list[int]


@dataclasses.dataclass(frozen=True)
class Skipped(Origin):
    """A row that gives no sample, or a cut one, and the reason."""

    reason: str

    def __str__(self) -> str:
        return f"{self.unit} {self.line}" + (f" ({self.id})" if self.id else "") + f": {self.reason}"

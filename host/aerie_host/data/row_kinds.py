"""What a row of the data is: a conversation, token ids, or nothing that gives a sample; and where it comes from."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

Message = dict[str, Any]

# JSON may escape halves of UTF-16's pairs.
SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where something comes from: its place in the data (0-based), its line or row number (1-based), and its id."""

    index: int
    line: int
    id: str
    unit: str = dataclasses.field(default="line", kw_only=True)

    def without_sample(self, reason: str) -> Skipped:
        """The same row, and why it gives no sample."""
        return Skipped(self.index, self.line, self.id, reason, unit=self.unit)


@dataclasses.dataclass(frozen=True)
class Conversation(Origin):
    """One conversation: messages, and the tools that they may use."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None


@dataclasses.dataclass(frozen=True)
class TokenRow(Origin):
    """One row of token ids with its loss mask."""

    input_ids: list[int]
    loss_mask: list[int]


@dataclasses.dataclass(frozen=True)
class Skipped(Origin):
    """A row that gives no sample, or not all of it, and why."""

    reason: str

    def __str__(self) -> str:
        return f"{self.unit} {self.line}" + (f" ({self.id})" if self.id else "") + f": {self.reason}"

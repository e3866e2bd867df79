"""Reading conversations from JSON lines, one per line, without losing any silently."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# ShareGPT's names on the left of the pairs' middle; what chat templates know on the right.
ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "tool": "tool",
}


@dataclasses.dataclass(frozen=True)
class Conversation:
    """One conversation: its place in the data (0-based), its line in the file (1-based), and its messages."""

    index: int
    line: int
    id: str
    messages: list[dict[str, str]]


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A line that gives no sample, and why."""

    index: int
    line: int
    id: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}" + (f" ({self.id})" if self.id else "") + f": {self.reason}"


def _content(value: Any) -> str:
    """The text of one message; raises ``ValueError`` for what is no text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in value):
        return "".join(str(part.get("text", "")) for part in value)
    raise ValueError(f"content of kind {type(value).__name__}, wanted text")


def _message(turn: Any, number: int) -> dict[str, str]:
    """One message with role and content, from ShareGPT's from/value or from role/content."""
    if not isinstance(turn, dict):
        raise TypeError(f"message {number} is no object")
    share = "from" in turn
    name = turn.get("from" if share else "role")
    role = ROLES.get(name) if isinstance(name, str) else None
    if role is None:
        raise ValueError(f"message {number} has the unknown role {name!r} (known: {', '.join(ROLES)})")
    try:
        return {"role": role, "content": _content(turn.get("value" if share else "content"))}
    except ValueError as error:
        raise ValueError(f"message {number}: {error}") from None


def parse_line(text: str, index: int, line: int) -> Conversation | Skipped:
    """One line of the file as a conversation, or the reason why it is none."""
    name = ""
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            raise TypeError("no JSON object")
        name = str(value.get("id", ""))
        turns = value.get("conversations", value.get("messages"))
        if not isinstance(turns, list):
            raise TypeError("neither 'conversations' nor 'messages' is a list")
        messages = [_message(turn, number) for number, turn in enumerate(turns, 1)]
    except json.JSONDecodeError as error:
        return Skipped(index, line, name, f"broken JSON: {error.msg} at column {error.colno}")
    except (TypeError, ValueError) as error:
        return Skipped(index, line, name, str(error))
    if not messages:
        return Skipped(index, line, name, "no messages")
    if not any(message["role"] == "assistant" for message in messages):
        return Skipped(index, line, name, "no assistant message: nothing to train on")
    return Conversation(index, line, name, messages)


def read_conversations(path: Path) -> Iterator[Conversation | Skipped]:
    """Every line of the file that is not blank, in order; ``OSError`` when the file cannot be read."""
    index = 0
    with path.open("rb") as stream:
        for line, raw in enumerate(stream, 1):
            if not raw.strip():
                continue
            try:
                text = raw.decode("utf-8-sig" if line == 1 else "utf-8")
            except UnicodeDecodeError as error:
                yield Skipped(index, line, "", f"no UTF-8 at byte {error.start}")
            else:
                yield parse_line(text, index, line)
            index += 1

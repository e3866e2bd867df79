"""Parse rows as conversations, in three shapes, or as token ids. Whatever is not read is counted."""

from __future__ import annotations

import collections
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from aerie_host.data.data_file import DATA, REMEDY, DataFile, Row
from aerie_host.data.row_kinds import Conversation, Message, Skipped, TokenRow
from aerie_host.shared.refusal import UsageRefusal
from aerie_host.shared.shard import WHOLE, Shard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Names of roles in ShareGPT and similar data on the left, roles of chat templates on the right.
ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
SHARE, OPENAI, ULTRA, TOKENS = "ShareGPT", "OpenAI messages", "UltraChat", "token ids"
# A row has one of these keys; it decides the row's shape.
SHAPE_KEYS = ("conversations", "messages", "data", "input_ids")
REASONING = ("reasoning_content", "reasoning", "thinking")
# Other keys of a message that chat templates read. Keys that nothing reads are counted.
TEMPLATE_KEYS = ("tool_call_id", "name")
READ_KEYS = {"tool_calls", *REASONING, *TEMPLATE_KEYS}
ID_KEYS = ("id", "prompt_id")
TOKEN_KEYS = {"input_ids", "loss_mask", "attention_mask", "labels", *ID_KEYS}
CONVERSATION_KEYS = {*SHAPE_KEYS, "system", "tools", *ID_KEYS}
# When none of so many first rows has a known shape, the file is refused.
ROWS_OF_NO_SHAPE = 100


class _RowError(Exception):
    """The row gives no sample. The message gives the reason."""


@dataclasses.dataclass
class Tally:
    """Counts for the report: the shapes of the rows, and what was not read of them."""

    shapes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    unknown_roles: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    unread_keys: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    unread_row_keys: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    without_mask: int = 0
    empty_answers: int = 0


def _content(value: Any) -> tuple[str, str]:
    """Text and reasoning of one message's content; ``_RowError`` for other content."""
    if isinstance(value, str):
        return value, ""
    texts, thoughts = [], []
    for part in value if isinstance(value, list) else [value]:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "thinking" and isinstance(part.get("thinking"), str):
            thoughts.append(part["thinking"])
        else:
            name = f"a part of type {kind!r}" if isinstance(value, list) else f"content of kind {type(value).__name__}"
            raise _RowError(f"{name}, wanted text")
    return "".join(texts), "".join(thoughts)


def _tool_calls(value: Any) -> list[dict[str, Any]]:
    """Tool calls with their arguments parsed, as chat templates expect them."""
    if not isinstance(value, list) or not all(isinstance(call, dict) for call in value):
        raise _RowError("'tool_calls' is no list of objects")
    calls = []
    for call in value:
        function = call.get("function", call)
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise _RowError("a tool call has no function with a name")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                function = {**function, "arguments": json.loads(arguments or "{}")}
            except (ValueError, RecursionError):
                raise _RowError("the arguments of a tool call are broken JSON") from None
        calls.append({**call, "function": function} if "function" in call else function)
    return calls


def _message(turn: dict[str, Any], role: str, number: int, tally: Tally) -> Message:
    """One message as chat templates expect it; ``_RowError`` names the message by its number."""
    try:
        return _checked_message(turn, role, tally)
    except _RowError as error:
        raise _RowError(f"message {number}: {error}") from None


def _checked_message(turn: dict[str, Any], role: str, tally: Tally) -> Message:
    share = "from" in turn
    tally.unread_keys.update(set(turn) - READ_KEYS - ({"from", "value"} if share else {"role", "content"}))
    for key in (*REASONING, *TEMPLATE_KEYS):
        if not isinstance(turn.get(key), (str, type(None))):
            raise _RowError(f"{key!r} is no text")
    message: Message = {"role": role}
    calls = turn.get("tool_calls")
    value = turn.get("value" if share else "content")
    thoughts = [turn[key] for key in REASONING if turn.get(key)]
    if value is None and (calls or thoughts):
        value = ""
    message["content"], thought = _content(value)
    if thought:
        thoughts.append(thought)
    if len(set(thoughts)) > 1:
        raise _RowError("has two reasonings that differ")
    if thoughts:
        message["reasoning_content"] = thoughts[0]
    if calls:
        message["tool_calls"] = _tool_calls(calls)
    message.update({key: turn[key] for key in TEMPLATE_KEYS if isinstance(turn.get(key), str)})
    return message


def _says_nothing(answer: Message) -> bool:
    """Whether an answer has neither text nor reasoning nor tool calls: only the end of its turn."""
    return not (answer["content"].strip() or answer.get("reasoning_content", "").strip() or answer.get("tool_calls"))


def _role(turn: Any, number: int, tally: Tally) -> str | None:
    """The role of a message; None for an unknown role, which is counted."""
    if not isinstance(turn, dict):
        raise _RowError(f"message {number} is no object")
    name = turn.get("from" if "from" in turn else "role")
    role = ROLES.get(name) if isinstance(name, str) else None
    if role is None:
        tally.unknown_roles[str(name)] += 1
    return role


def _messages(turns: Any, key: str, tally: Tally) -> list[Message]:
    if not isinstance(turns, list):
        raise _RowError(f"{key!r} is no list")
    if not turns:
        raise _RowError("no messages")
    tally.shapes[SHARE if isinstance(turns[0], dict) and "from" in turns[0] else OPENAI] += 1
    roles = [_role(turn, number, tally) for number, turn in enumerate(turns, 1)]
    if None in roles:
        number = roles.index(None)
        name = turns[number].get("from" if "from" in turns[number] else "role")
        raise _RowError(f"message {number + 1} has the unknown role {name!r} (known: {', '.join(ROLES)})")
    return [_message(turn, str(role), n, tally) for n, (turn, role) in enumerate(zip(turns, roles, strict=True), 1)]


def _ultra(texts: Any, tally: Tally) -> list[Message]:
    """The messages in UltraChat's ``data``: questions and answers in turn."""
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise _RowError("'data' is no list of texts")
    tally.shapes[ULTRA] += 1
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


def _tools(value: Any) -> list[dict[str, Any]] | None:
    """The tools of a row: a list, or JSON text of one as in parquet files."""
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _RowError("'tools' is broken JSON") from None
    if not value:
        return None
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise _RowError("'tools' is no list of objects")
    return value


def _numbers(value: Any, name: str) -> list[int]:
    if not isinstance(value, list) or not all(type(number) is int and number >= 0 for number in value):
        raise _RowError(f"{name!r} is no list of whole numbers from 0 on")
    return value


def _token_row(value: dict[str, Any], tally: Tally) -> tuple[list[int], list[int]]:
    tally.shapes[TOKENS] += 1
    ids = _numbers(value["input_ids"], "input_ids")
    if not ids:
        raise _RowError("'input_ids' is empty")
    if value.get("attention_mask") is not None and value["attention_mask"] != [1] * len(ids):
        raise _RowError("has an 'attention_mask' that is not 1 for every token: give the tokens without padding")
    if value.get("loss_mask") is None:
        if value.get("labels") is not None:
            raise _RowError("has 'labels' and no 'loss_mask': give the mask, 1 for tokens that are trained on")
        tally.without_mask += 1
        return ids, [1] * len(ids)
    mask = _numbers(value["loss_mask"], "loss_mask")
    if len(mask) != len(ids) or not set(mask) <= {0, 1}:
        raise _RowError(f"'loss_mask' has {len(mask)} values for {len(ids)} tokens, wanted as many, each 0 or 1")
    return ids, mask


def parse_row(row: Row, unit: str, tally: Tally) -> Conversation | TokenRow | Skipped:
    """Parse one row. A row that gives no sample comes back as ``Skipped``, with the reason."""
    value, name = row.value, ""
    if row.problem:
        return Skipped(row.place, row.number, name, row.problem, unit=unit)
    try:
        if not isinstance(value, dict):
            raise _RowError("no JSON object")
        name = next((str(value[key]) for key in ID_KEYS if value.get(key) is not None), "")
        keys = [key for key in SHAPE_KEYS if value.get(key) is not None]
        if len(keys) != 1:
            found = " and ".join(keys) or f"the keys {', '.join(value) or '(none)'}"
            raise _RowError(f"has {found}, wanted one of {', '.join(SHAPE_KEYS)}")
        tally.unread_row_keys.update(set(value) - (TOKEN_KEYS if keys[0] == "input_ids" else CONVERSATION_KEYS))
        if keys[0] == "input_ids":
            return TokenRow(row.place, row.number, name, *_token_row(value, tally), unit=unit)
        messages = _ultra(value["data"], tally) if keys[0] == "data" else _messages(value[keys[0]], keys[0], tally)
        if system := value.get("system"):
            if not isinstance(system, str) or messages[0]["role"] == "system":
                raise _RowError("has a 'system' that is no text, or one in its messages as well")
            messages.insert(0, {"role": "system", "content": system})
        answers = [message for message in messages if message["role"] == "assistant"]
        if not answers:
            raise _RowError("no assistant message: nothing to train on")
        tally.empty_answers += sum(map(_says_nothing, answers))
        return Conversation(row.place, row.number, name, messages, _tools(value.get("tools")), unit=unit)
    except _RowError as error:
        return Skipped(row.place, row.number, name, str(error), unit=unit)


class DataRows:
    """The parsed rows of a data file, or of a shard of it. Iterating gives every row that is not blank, in order.

    ``first``: read only so many of the first rows of the file; they are counted before the file is divided into shards.
    0 reads all.
    """

    def __init__(self, path: Path, shard: Shard = WHOLE, first: int = 0) -> None:
        self.file = DataFile(path)
        self.shard = shard
        self.first = first
        self.tally = Tally()

    def __iter__(self) -> Iterator[Conversation | TokenRow | Skipped]:
        seen, first = 0, ""
        for row in self.file.read(self.shard):
            if self.first and row.place >= self.first:
                break
            parsed = parse_row(row, self.file.unit, self.tally)
            seen, first = seen + 1, first or str(parsed)
            if seen == ROWS_OF_NO_SHAPE:
                self._require_shape(seen, first)
            yield parsed
        self._require_shape(seen, first)

    def _require_shape(self, seen: int, first: str) -> None:
        if not self.tally.shapes:
            found = f"none of {seen} rows is a conversation or has token ids; {first}"
            if not seen:
                whole = self.shard == WHOLE
                found = "it has no row" if whole else f"shard {self.shard} of it has no row: take fewer shards"
            wanted = f"rows with one of the keys {', '.join(SHAPE_KEYS)}"
            raise UsageRefusal(DATA, f"{self.file.path} is {self.file.format}, but {found}", wanted, REMEDY)

    @property
    def description(self) -> str:
        """The format and the shapes of the rows, in words."""
        shapes = ", ".join(f"{count:,} {name}" for name, count in sorted(self.tally.shapes.items()))
        return f"{self.file.format}{'' if self.shard == WHOLE else f', shard {self.shard}'}: {shapes}"

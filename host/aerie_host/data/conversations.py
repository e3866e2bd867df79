"""From rows to conversations or token ids: three shapes of conversations, without losing anything silently."""

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

# Names of ShareGPT and its kin on the left, what chat templates know on the right.
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
# The one key of a row that says which shape it has.
SHAPE_KEYS = ("conversations", "messages", "data", "input_ids")
REASONING = ("reasoning_content", "reasoning", "thinking")
# Other keys of a message that chat templates read; what is none of these is counted.
TEMPLATE_KEYS = ("tool_call_id", "name")
READ_KEYS = {"tool_calls", *REASONING, *TEMPLATE_KEYS}
ID_KEYS = ("id", "prompt_id")
TOKEN_KEYS = {"input_ids", "loss_mask", "attention_mask", "labels", *ID_KEYS}
CONVERSATION_KEYS = {*SHAPE_KEYS, "system", "tools", *ID_KEYS}
# After this many rows of no known shape the file is no data.
ROWS_OF_NO_SHAPE = 100


class _RefusedError(Exception):
    """The row gives no sample; the message says why."""


@dataclasses.dataclass
class Tally:
    """What the rows were, for the report."""

    shapes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    unknown_roles: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    unread_keys: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    unread_row_keys: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    without_mask: int = 0
    empty_answers: int = 0


def _content(value: Any) -> tuple[str, str]:
    """Text and reasoning of one message; raises ``_RefusedError`` for what is neither."""
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
            raise _RefusedError(f"{name}, wanted text")
    return "".join(texts), "".join(thoughts)


def _tool_calls(value: Any) -> list[dict[str, Any]]:
    """Tool calls with their arguments as objects, as templates take them."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise _RefusedError("'tool_calls' is no list of objects")
    calls = []
    for one in value:
        function = one.get("function", one)
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise _RefusedError("a tool call has no function with a name")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                function = {**function, "arguments": json.loads(arguments or "{}")}
            except (ValueError, RecursionError):
                raise _RefusedError("the arguments of a tool call are broken JSON") from None
        calls.append({**one, "function": function} if "function" in one else function)
    return calls


def _message(turn: dict[str, Any], role: str, number: int, tally: Tally) -> Message:
    """One message as chat templates take it; what is wrong with it is said with its number."""
    try:
        return _checked_message(turn, role, tally)
    except _RefusedError as error:
        raise _RefusedError(f"message {number}: {error}") from None


def _checked_message(turn: dict[str, Any], role: str, tally: Tally) -> Message:
    share = "from" in turn
    tally.unread_keys.update(set(turn) - READ_KEYS - ({"from", "value"} if share else {"role", "content"}))
    for key in (*REASONING, *TEMPLATE_KEYS):
        if not isinstance(turn.get(key), (str, type(None))):
            raise _RefusedError(f"{key!r} is no text")
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
        raise _RefusedError("has two reasonings that differ")
    if thoughts:
        message["reasoning_content"] = thoughts[0]
    if calls:
        message["tool_calls"] = _tool_calls(calls)
    message.update({key: turn[key] for key in TEMPLATE_KEYS if isinstance(turn.get(key), str)})
    return message


def _says_nothing(answer: Message) -> bool:
    """Whether an answer is nothing but the end of its turn."""
    return not (answer["content"].strip() or answer.get("reasoning_content", "").strip() or answer.get("tool_calls"))


def _role(turn: Any, number: int, tally: Tally) -> str | None:
    """The role of a message, None for one that is not known; that is counted."""
    if not isinstance(turn, dict):
        raise _RefusedError(f"message {number} is no object")
    name = turn.get("from" if "from" in turn else "role")
    role = ROLES.get(name) if isinstance(name, str) else None
    if role is None:
        tally.unknown_roles[str(name)] += 1
    return role


def _messages(turns: Any, key: str, tally: Tally) -> list[Message]:
    if not isinstance(turns, list):
        raise _RefusedError(f"{key!r} is no list")
    if not turns:
        raise _RefusedError("no messages")
    tally.shapes[SHARE if isinstance(turns[0], dict) and "from" in turns[0] else OPENAI] += 1
    roles = [_role(turn, number, tally) for number, turn in enumerate(turns, 1)]
    if None in roles:
        number = roles.index(None)
        name = turns[number].get("from" if "from" in turns[number] else "role")
        raise _RefusedError(f"message {number + 1} has the unknown role {name!r} (known: {', '.join(ROLES)})")
    return [_message(turn, str(role), n, tally) for n, (turn, role) in enumerate(zip(turns, roles, strict=True), 1)]


def _ultra(texts: Any, tally: Tally) -> list[Message]:
    """UltraChat's ``data``: questions and answers by turns."""
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise _RefusedError("'data' is no list of texts")
    tally.shapes[ULTRA] += 1
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


def _tools(value: Any) -> list[dict[str, Any]] | None:
    """The tools that a row offers, given as a list or, as in parquet, as its JSON text."""
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _RefusedError("'tools' is broken JSON") from None
    if not value:
        return None
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise _RefusedError("'tools' is no list of objects")
    return value


def _numbers(value: Any, name: str) -> list[int]:
    if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
        raise _RefusedError(f"{name!r} is no list of whole numbers from 0 on")
    return value


def _token_row(value: dict[str, Any], tally: Tally) -> tuple[list[int], list[int]]:
    tally.shapes[TOKENS] += 1
    ids = _numbers(value["input_ids"], "input_ids")
    if not ids:
        raise _RefusedError("'input_ids' is empty")
    if value.get("attention_mask") is not None and value["attention_mask"] != [1] * len(ids):
        raise _RefusedError("has an 'attention_mask' that is not 1 for every token: give the tokens without padding")
    if value.get("loss_mask") is None:
        if value.get("labels") is not None:
            raise _RefusedError("has 'labels' and no 'loss_mask': give the mask, 1 for tokens that are trained on")
        tally.without_mask += 1
        return ids, [1] * len(ids)
    mask = _numbers(value["loss_mask"], "loss_mask")
    if len(mask) != len(ids) or not set(mask) <= {0, 1}:
        raise _RefusedError(f"'loss_mask' has {len(mask)} values for {len(ids)} tokens, wanted as many, each 0 or 1")
    return ids, mask


def parse_row(row: Row, unit: str, tally: Tally) -> Conversation | TokenRow | Skipped:
    """What one row gives, or the reason why it gives no sample."""
    value, name = row.value, ""
    if row.problem:
        return Skipped(row.place, row.number, name, row.problem, unit=unit)
    try:
        if not isinstance(value, dict):
            raise _RefusedError("no JSON object")
        name = next((str(value[key]) for key in ID_KEYS if value.get(key) is not None), "")
        keys = [key for key in SHAPE_KEYS if value.get(key) is not None]
        if len(keys) != 1:
            found = " and ".join(keys) or f"the keys {', '.join(value) or '(none)'}"
            raise _RefusedError(f"has {found}, wanted one of {', '.join(SHAPE_KEYS)}")
        tally.unread_row_keys.update(set(value) - (TOKEN_KEYS if keys[0] == "input_ids" else CONVERSATION_KEYS))
        if keys[0] == "input_ids":
            return TokenRow(row.place, row.number, name, *_token_row(value, tally), unit=unit)
        messages = _ultra(value["data"], tally) if keys[0] == "data" else _messages(value[keys[0]], keys[0], tally)
        if system := value.get("system"):
            if not isinstance(system, str) or messages[0]["role"] == "system":
                raise _RefusedError("has a 'system' that is no text, or one in its messages as well")
            messages.insert(0, {"role": "system", "content": system})
        answers = [message for message in messages if message["role"] == "assistant"]
        if not answers:
            raise _RefusedError("no assistant message: nothing to train on")
        tally.empty_answers += sum(map(_says_nothing, answers))
        return Conversation(row.place, row.number, name, messages, _tools(value.get("tools")), unit=unit)
    except _RefusedError as error:
        return Skipped(row.place, row.number, name, str(error), unit=unit)


class Data:
    """A data file, or a shard of it: iterating gives every row that is not blank, in order.

    ``first``: how many of the first rows of the file, before it is divided; 0 for all.
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
            entry = parse_row(row, self.file.unit, self.tally)
            seen, first = seen + 1, first or str(entry)
            if seen == ROWS_OF_NO_SHAPE:
                self._require_shape(seen, first)
            yield entry
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
        """Format and shapes in words."""
        shapes = ", ".join(f"{count:,} {name}" for name, count in sorted(self.tally.shapes.items()))
        return f"{self.file.format}{'' if self.shard == WHOLE else f', shard {self.shard}'}: {shapes}"

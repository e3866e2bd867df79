"""Rows as conversations: three shapes of them, token ids, and every way in which a row can be wrong."""

from __future__ import annotations

import json

import pytest

from aerie_host.data.conversations import DataRows, Tally, parse_row
from aerie_host.data.data_file import Row
from aerie_host.data.row_kinds import Conversation, Skipped, TokenRow
from aerie_host.shared.shard import Shard
from tests.refusals import usage_refused

GOOD = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "where"}}


def parsed(value, tally=None):
    return parse_row(Row(0, 1, value), "line", tally or Tally())


def test_the_three_shapes_mean_the_same_and_are_told_apart():
    tally = Tally()
    for value in (
        {"id": 7, "conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi"}]},
        {"id": "7", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}, GOOD[1]]},
        {"prompt_id": "7", "prompt": "Hello", "messages": GOOD},
        {"id": "7", "data": ["Hello", "Hi"]},
    ):
        assert parsed(value, tally) == Conversation(0, 1, "7", GOOD)
    assert tally.shapes == {"ShareGPT": 1, "OpenAI messages": 2, "UltraChat": 1}
    assert not tally.unknown_roles
    assert not tally.unread_keys


def test_answers_that_say_nothing_are_counted():
    tally = Tally()
    for answer in (
        {"role": "assistant", "content": ""},
        {"from": "gpt", "value": " \n"},
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": "", "reasoning_content": " "},
        {"role": "assistant", "content": "", "tool_calls": []},
    ):
        assert isinstance(parsed({"messages": [answer, GOOD[0], answer]}, tally), Conversation)
    parsed({"data": ["Hello", ""]}, tally)
    assert tally.empty_answers == 11
    for answer in (
        GOOD[1],
        {"role": "assistant", "content": "", "reasoning_content": "Hm."},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "where"}]},
        {"role": "user", "content": ""},
    ):
        parsed({"messages": [answer, GOOD[1]]}, tally)
    assert tally.empty_answers == 11


def test_system_prompts_tools_and_reasoning_reach_the_template():
    value = {
        "system": "Be brief.",
        "tools": json.dumps([TOOL]),
        "conversations": [
            {"role": "user", "content": "Where?", "weight": 1},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "where", "arguments": '{"city": "Rome"}'}}
            ]},
            {"role": "tool", "content": "Italy", "tool_call_id": "c1", "name": "where"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Easy."}, {"type": "text", "text": "In Italy."}
            ]},
            {"from": "human", "value": "And Oslo?"},
            {"from": "gpt", "value": "In Norway.", "thinking": "Hm."},
        ],
    }  # fmt: skip
    tally = Tally()
    entry = parsed(value, tally)
    assert entry.tools == [TOOL]
    call = {"id": "c1", "type": "function", "function": {"name": "where", "arguments": {"city": "Rome"}}}
    assert entry.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "Italy", "tool_call_id": "c1", "name": "where"},
        {"role": "assistant", "content": "In Italy.", "reasoning_content": "Easy."},
        {"role": "user", "content": "And Oslo?"},
        {"role": "assistant", "content": "In Norway.", "reasoning_content": "Hm."},
    ]
    # Nothing is read of it, and that is said.
    assert tally.unread_keys == {"weight": 1}


def test_token_ids_come_with_a_mask_or_are_trained_on_whole():
    tally = Tally()
    assert parsed({"input_ids": [5, 6], "loss_mask": [0, 1]}, tally) == TokenRow(0, 1, "", [5, 6], [0, 1])
    assert parsed({"input_ids": [5, 6]}, tally) == TokenRow(0, 1, "", [5, 6], [1, 1])
    assert (tally.shapes, tally.without_mask) == ({"token ids": 2}, 1)


def test_of_a_message_in_two_manners_what_is_not_read_is_counted():
    tally = Tally()
    parsed({"messages": [{**GOOD[0], "from": "human", "value": "Bye"}, {**GOOD[1], "value": "Bye"}]}, tally)
    assert tally.unread_keys == {"role": 1, "content": 1, "value": 1}


def test_keys_of_a_row_that_are_not_read_are_counted():
    tally = Tally()
    parsed({"id": 1, "messages": GOOD, "system": "Be brief.", "tools": [TOOL], "score": 1, "prompt": "Hi"}, tally)
    parsed({"id": 2, "input_ids": [5], "loss_mask": [1], "attention_mask": [1], "labels": [5], "system": "Hm."}, tally)
    assert tally.unread_row_keys == {"score": 1, "prompt": 1, "system": 1}


def test_an_id_of_null_is_none():
    assert parsed({"id": None, "messages": GOOD}).id == ""
    assert parsed({"id": None, "prompt_id": 0, "messages": GOOD}).id == "0"


def test_every_unknown_role_is_counted():
    tally = Tally()
    turns = [{"from": "human", "value": "a"}, {"from": "wizard", "value": "b"}, {"from": None, "value": "c"}]
    for _ in range(2):
        assert isinstance(parsed({"conversations": turns}, tally), Skipped)
    assert tally.unknown_roles == {"wizard": 2, "None": 2}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([1], "no JSON object"),
        ({"id": "x"}, "has the keys id, wanted one of conversations, messages, data, input_ids"),
        ({}, "has the keys (none)"),
        ({"messages": GOOD, "conversations": GOOD}, "has conversations and messages, wanted one of"),
        ({"messages": "x"}, "'messages' is no list"),
        ({"messages": []}, "no messages"),
        ({"messages": ["a"]}, "message 1 is no object"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "message 1 has the unknown role 'wizard'"),
        ({"messages": [{"role": "user", "content": 5}]}, "message 1: content of kind int"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "message 1: a part of type 'image'"),
        ({"messages": [{"role": "user"}, GOOD[1]]}, "message 1: content of kind NoneType"),
        ({"messages": [{"role": "user", "content": "a"}]}, "no assistant message"),
        ({"messages": [GOOD[0], {**GOOD[1], "tool_calls": "x"}]}, "message 2: 'tool_calls' is no list"),
        (
            {
                "messages": [
                    GOOD[0],
                    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
                ]
            },
            "message 2: the arguments of a tool call are broken JSON",
        ),
        ({"messages": [GOOD[0], {**GOOD[1], "thinking": "a", "reasoning": "b"}]}, "two reasonings that differ"),
        ({"messages": [GOOD[0], {**GOOD[1], "reasoning": ["a"]}]}, "message 2: 'reasoning' is no text"),
        ({"messages": [{**GOOD[0], "tool_call_id": 5}, GOOD[1]]}, "message 1: 'tool_call_id' is no text"),
        ({"messages": [GOOD[0], {**GOOD[1], "tool_calls": [{"function": 5}]}]}, "a tool call has no function with"),
        ({"messages": [GOOD[0], {**GOOD[1], "tool_calls": [{}]}]}, "a tool call has no function with a name"),
        ({"messages": GOOD, "tools": "[" * 100_000}, "'tools' is broken JSON"),
        ({"messages": GOOD, "tools": "[{"}, "'tools' is broken JSON"),
        ({"messages": GOOD, "tools": {"a": 1}}, "'tools' is no list of objects"),
        ({"messages": GOOD, "system": 5}, "has a 'system' that is no text"),
        ({"messages": [{"role": "system", "content": "a"}, *GOOD], "system": "b"}, "or one in its messages as well"),
        ({"data": ["a", 5]}, "'data' is no list of texts"),
        ({"data": ["a"]}, "no assistant message"),
        ({"input_ids": []}, "'input_ids' is empty"),
        ({"input_ids": [1, -2]}, "'input_ids' is no list of whole numbers"),
        ({"input_ids": [1, True]}, "'input_ids' is no list of whole numbers"),
        ({"input_ids": "12"}, "'input_ids' is no list of whole numbers"),
        ({"input_ids": [1, 2], "loss_mask": [1]}, "'loss_mask' has 1 values for 2 tokens"),
        ({"input_ids": [1, 2], "loss_mask": [1, 2]}, "each 0 or 1"),
        ({"input_ids": [1, 2], "labels": [-100, 2]}, "has 'labels' and no 'loss_mask'"),
        ({"input_ids": [1, 0], "attention_mask": [1, 0]}, "give the tokens without padding"),
    ],
)
def test_a_row_that_gives_no_sample_says_why_and_where(value, reason):
    entry = parse_row(Row(3, 9, value), "row", Tally())
    assert isinstance(entry, Skipped)
    assert str(entry).startswith("row 9")
    assert reason in entry.reason


def test_lines_are_numbered_as_an_editor_does_and_none_is_lost(tmp_path):
    good = json.dumps({"messages": GOOD}).encode()
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + good + b"\n\n" + good[:-3] + b"\n" + b'{"a": "\xff"}\n' + good + b"\r\n" + good)
    entries = list(DataRows(path))
    assert [(e.index, e.line, type(e).__name__) for e in entries] == [
        (0, 1, "Conversation"),
        (1, 3, "Skipped"),
        (2, 4, "Skipped"),
        (3, 5, "Conversation"),
        (4, 6, "Conversation"),
    ]
    assert "no UTF-8 at byte 7" in str(entries[2])


@pytest.mark.parametrize("count", [1, 99, 250])
def test_a_file_without_a_known_shape_is_refused_before_all_of_it_is_read(tmp_path, count):
    path = tmp_path / "c.jsonl"
    path.write_text('{"question": "a", "answer": "b"}\n' * count)
    read, message = [], rf"is JSON lines, but none of {min(count, 100)} rows .* the keys question, answer"
    with usage_refused(match=message):
        read.extend(DataRows(path))
    assert len(read) == min(count, 99)


def test_a_file_without_rows_and_what_a_file_is_in_words(tmp_path):
    path = tmp_path / "c.json"
    path.write_text("[]")
    with usage_refused(match="is JSON array, but it has no row"):
        list(DataRows(path))
    path.write_text(json.dumps([{"messages": GOOD}] * 3))
    with usage_refused(match="shard 4/8 of it has no row: take fewer shards"):
        list(DataRows(path, Shard(4, 8)))
    path.write_text(json.dumps([{"messages": GOOD}, {"data": ["a", "b"]}, {"messages": GOOD}]))
    data = DataRows(path, Shard(1, 2))
    assert [(entry.index, entry.line) for entry in data] == [(0, 1), (2, 3)]
    assert data.description == "JSON array, shard 1/2: 2 OpenAI messages"


def test_the_demo_data_is_what_it_says():
    from pathlib import Path

    entries = list(DataRows(Path(__file__).parents[3] / "files/conversations/demo.jsonl"))
    assert len(entries) >= 64
    assert all(isinstance(entry, Conversation) for entry in entries)
    turns = [sum(m["role"] == "assistant" for m in entry.messages) for entry in entries]
    assert min(turns) >= 2
    assert len({entry.id for entry in entries}) == len(entries)
    assert sum(entry.messages[0]["role"] == "system" for entry in entries) >= 5
    answers = [m["content"] for entry in entries for m in entry.messages if m["role"] == "assistant"]
    assert len(set(answers)) == len(answers)

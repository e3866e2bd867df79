"""Conversation files: both forms of messages, and every way in which a line can be wrong."""

from __future__ import annotations

import json

import pytest

from aerie_host.conversations import Conversation, Skipped, parse_line, read_conversations

GOOD = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]


def test_sharegpt_and_role_content_mean_the_same():
    share = {"id": 7, "conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi"}]}
    plain = {"id": "7", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}, GOOD[1]]}
    for value in (share, plain):
        assert parse_line(json.dumps(value), 0, 1) == Conversation(0, 1, "7", GOOD)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"id": "x", "conversations": [', "broken JSON"),
        ("[1]", "no JSON object"),
        ('{"id": "x"}', "neither 'conversations' nor 'messages' is a list"),
        ('{"messages": []}', "no messages"),
        ('{"messages": ["a"]}', "message 1 is no object"),
        ('{"messages": [{"role": "wizard", "content": "a"}]}', "message 1 has the unknown role 'wizard'"),
        ('{"messages": [{"role": "user", "content": 5}]}', "message 1: content of kind int"),
        ('{"messages": [{"role": "user", "content": [{"type": "image"}]}]}', "message 1: content of kind list"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "no assistant message"),
    ],
)
def test_a_line_that_gives_no_sample_says_why_and_where(text, reason):
    entry = parse_line(text, 3, 9)
    assert isinstance(entry, Skipped)
    assert str(entry).startswith("line 9")
    assert reason in entry.reason


def test_lines_are_numbered_as_an_editor_does_and_none_is_lost(tmp_path):
    good = json.dumps({"messages": GOOD}).encode()
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + good + b"\n\n" + good[:-3] + b"\n" + b'{"a": "\xff"}\n' + good + b"\r\n" + good)
    entries = list(read_conversations(path))
    assert [(e.index, e.line, type(e).__name__) for e in entries] == [
        (0, 1, "Conversation"),
        (1, 3, "Skipped"),
        (2, 4, "Skipped"),
        (3, 5, "Conversation"),
        (4, 6, "Conversation"),
    ]
    assert "no UTF-8 at byte 7" in str(entries[2])


def test_the_demo_data_is_what_it_says():
    from pathlib import Path

    entries = list(read_conversations(Path(__file__).parents[3] / "files/conversations/demo.jsonl"))
    assert len(entries) >= 64
    assert all(isinstance(entry, Conversation) for entry in entries)
    turns = [sum(m["role"] == "assistant" for m in entry.messages) for entry in entries]
    assert min(turns) >= 2
    assert len({entry.id for entry in entries}) == len(entries)
    assert sum(entry.messages[0]["role"] == "system" for entry in entries) >= 5
    answers = [m["content"] for entry in entries for m in entry.messages if m["role"] == "assistant"]
    assert len(set(answers)) == len(answers)

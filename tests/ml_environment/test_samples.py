"""Tokens and loss masks of whole conversations, through real tokenizers."""

from __future__ import annotations

import json

import pytest

from aerie_host.data.conversations import DataRows
from aerie_host.data.loss_mask import TemplateRefusedError
from aerie_host.data.row_kinds import Conversation, TokenRow
from aerie_host.data.samples import Encoder, Limits, has_generation_markers, listed, prepare
from tests.ml_environment.models import SPECIALS, fast_tokenizer, slow_tokenizer
from tests.refusals import refused

ENDS = {"chatml": 1, "marked": 1, "empty_think": 1, "reasoning": 1, "llama3": 3, "kimi_k2": 4, "kimi_k2_thinking": 4}
ENDS |= {"deepseek": 1, "deepseek_switch": 1}
# What stands before the last answer's text, and before every answer's, and is the answer's.
LAST = dict.fromkeys(("empty_think", "reasoning"), "<think>\n\n</think>\n\n")
EVERY = {"kimi_k2_thinking": "<think></think>"}
CHAT = [
    {"role": "user", "content": "Where is Rome?"},
    {"role": "assistant", "content": "In Italy, in the middle."},
    {"role": "user", "content": "And Oslo? caf\u00e9"},
    {"role": "assistant", "content": "In Norway \U0001f389: caf\u00e9 user"},
]


def chatml():
    return Encoder(fast_tokenizer("chatml"))


def masked_texts(tokenizer, messages):
    """The text of every run of masked tokens."""
    input_ids, mask = Encoder(tokenizer).encode(messages)
    assert len(input_ids) == len(mask)
    runs, current = [], []
    for token, value in zip([*input_ids, None], [*mask, 0], strict=True):
        if value:
            current.append(token)
        elif current:
            runs.append(tokenizer.decode(current, skip_special_tokens=False))
            current = []
    return runs


@pytest.mark.parametrize("make", [fast_tokenizer, slow_tokenizer], ids=["with offsets", "without offsets"])
@pytest.mark.parametrize("family", sorted(ENDS))
def test_exactly_the_answers_and_their_end_of_turn_are_trained_on(family, make):
    end = SPECIALS[family][ENDS[family]]
    found = masked_texts(make(family), CHAT)
    wanted = [EVERY.get(family, "") + message["content"] + end for message in CHAT if message["role"] == "assistant"]
    wanted[-1] = LAST.get(family, "") + wanted[-1]
    assert [text.replace(" <", "<") for text in found] == wanted


@pytest.mark.parametrize("family", sorted(ENDS))
def test_tokens_are_those_of_the_whole_rendering(family):
    tokenizer = fast_tokenizer(family)
    input_ids, _ = Encoder(tokenizer).encode(CHAT)
    assert (
        input_ids
        == tokenizer(tokenizer.apply_chat_template(CHAT, tokenize=False), add_special_tokens=False)["input_ids"]
    )


def test_the_mask_is_that_of_the_template_where_it_has_markers():
    marked, plain = fast_tokenizer("marked"), fast_tokenizer("chatml")
    assert has_generation_markers(marked.chat_template)
    assert not has_generation_markers(plain.chat_template)
    # The same text without the markers must give the same mask by our own method.
    plain.chat_template = marked.chat_template.replace("{%- generation -%}", "").replace("{%- endgeneration -%}", "")
    assert Encoder(marked).encode(CHAT) == Encoder(plain).encode(CHAT)
    assert Encoder(marked).method != Encoder(plain).method


def test_a_template_that_cannot_be_masked_is_refused():
    with pytest.raises(TemplateRefusedError):
        Encoder(fast_tokenizer("unmaskable")).encode(CHAT)


def test_without_a_chat_template_nothing_is_guessed():
    tokenizer = fast_tokenizer("chatml")
    tokenizer.chat_template = None
    with refused(match="no chat template"):
        Encoder(tokenizer)


@pytest.fixture
def data(tmp_path):
    def conversation(name, answer):
        return json.dumps({"id": name, "messages": [CHAT[0], {"role": "assistant", "content": answer}]})

    lines = [conversation("short", "Yes."), conversation("long", "Rome " * 60), "{", conversation("third", "No.")]
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_too_long_is_an_error_that_names_the_line(data):
    with refused(match=r"1 samples are too long: line 2 \(long\): \d+ tokens, longer than 80"):
        prepare(DataRows(data), chatml, Limits(80))


@pytest.mark.parametrize(("choice", "indices", "lengths"), [("skip", [0, 3], None), ("truncate", [0, 1, 3], 80)])
def test_too_long_may_be_skipped_or_cut_and_is_listed_either_way(data, choice, indices, lengths):
    done = prepare(DataRows(data), chatml, Limits(80, choice))
    assert [sample.index for sample in done.samples] == indices
    assert [sample.line for sample in done.samples] == [index + 1 for index in indices]
    assert len(done.samples) + len(done.skipped) == 4
    assert "line 3: broken JSON" in listed(done.skipped)
    if lengths:
        assert len(done.samples[1].input_ids) == len(done.samples[1].loss_mask) == lengths
        assert "line 2" in listed(done.truncated)
    else:
        assert "line 2 (long)" in listed(done.skipped)


def test_a_sample_whose_answer_was_cut_off_has_nothing_to_train_on():
    messages = [{"role": "user", "content": "Rome " * 60}, CHAT[1]]
    done = prepare([Conversation(0, 1, "x", messages)], chatml, Limits(60, "truncate"))
    assert done.samples == []
    assert "no trainable token in the first 60" in listed(done.skipped)


def test_the_first_token_alone_is_nothing_to_train_on():
    rows = [TokenRow(n, n + 1, "", [5, 6, 7][:length], [1, 0, 0][:length]) for n, length in enumerate((3, 1))]
    done = prepare([*rows, TokenRow(2, 3, "", [5, 6], [0, 1])], chatml, Limits(60))
    assert [sample.index for sample in done.samples] == [2]
    assert [entry.reason for entry in done.skipped] == [
        "no trainable token but the first, which training leaves out"
    ] * 2


def test_at_most_the_first_samples_are_taken(data):
    rows = DataRows(data, first=2)
    done = prepare(rows, chatml, Limits(512))
    assert [sample.index for sample in done.samples] == [0, 1]
    # Nor is anything said of the others.
    assert rows.description == "JSON lines: 2 OpenAI messages"

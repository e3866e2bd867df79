# ruff: noqa: RUF001 - the bars of one family of models are what is tested
"""Assistant spans in the rendered text, for templates of several families."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
import jinja2.sandbox
import pytest

from aerie_host.data.loss_mask import (
    TemplateRefusedError,
    assistant_spans,
    left_out,
    mask_by_offsets,
    mask_by_prefix_tokens,
    refuse_lost_calls,
)

TEMPLATES = Path(__file__).parents[2] / "chat_templates"
SPECIALS = {
    "chatml": ["<|im_start|>", "<|im_end|>"],
    "llama3": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "kimi_k2": ["<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"],
    "deepseek": ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"],
    "deepseek_switch": ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"],
    "kimi_k2_thinking": ["<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"],
    "empty_think": ["<|im_start|>", "<|im_end|>"],
    "reasoning": ["<|im_start|>", "<|im_end|>"],
    "alternating": ["<s>", "</s>"],
    "words_only": [],
    "unmaskable": [],
}
CHAT = [
    {"role": "user", "content": "Where is Rome?"},
    {"role": "assistant", "content": "In Italy."},
    {"role": "user", "content": "And Oslo?\n"},
    {"role": "assistant", "content": "In Norway: in the south."},
    {"role": "user", "content": "In Italy."},
    {"role": "assistant", "content": "You said that. <|im_start|>?"},
]


def renderer(name):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def refuse(message):
        raise jinja2.TemplateError(message)

    environment.globals["raise_exception"] = refuse
    # As Transformers has it: text, not markup.
    environment.filters["tojson"] = json.dumps
    template = environment.from_string((TEMPLATES / f"{name}.jinja").read_text())

    def render(messages, add_generation_prompt):
        return template.render(messages=messages, add_generation_prompt=add_generation_prompt)

    return render


def spans_of(name, messages):
    render = renderer(name)
    full = render(messages, False)
    return [full[start:end] for start, end in assistant_spans(render, full, messages, SPECIALS[name])]


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("chatml", "<|im_end|>"),
        ("llama3", "<|eot_id|>"),
        ("kimi_k2", "<|im_end|>"),
        ("deepseek", "<｜end▁of▁sentence｜>"),
        ("deepseek_switch", "<｜end▁of▁sentence｜>"),
        ("words_only", ""),
    ],
)
@pytest.mark.parametrize("system", [False, True])
def test_each_answer_and_its_end_of_turn_and_nothing_else(name, end, system):
    messages = ([{"role": "system", "content": 'Say "In Italy." often.'}] if system else []) + CHAT
    assert spans_of(name, messages) == [m["content"] + end for m in CHAT if m["role"] == "assistant"]


def test_a_template_that_treats_the_last_turn_otherwise_is_masked_by_exchange():
    assert spans_of("empty_think", CHAT) == [
        "In Italy.<|im_end|>",
        "In Norway: in the south.<|im_end|>",
        # What the model generates after the header of the last turn begins with the block.
        "<think>\n\n</think>\n\nYou said that. <|im_start|>?<|im_end|>",
    ]


THOUGHT = {"role": "assistant", "content": "In Italy.", "reasoning_content": "Easy, I know."}
INLINE = {"role": "assistant", "content": "<think>\nEasy, I know.\n</think>\n\nIn Italy."}
LOST = {"role": "assistant", "content": "In Norway."}


def spans_and_left_out(name, messages):
    return spans_of(name, messages), left_out(renderer(name)(messages, False), messages)


@pytest.mark.parametrize("first", [THOUGHT, INLINE], ids=["own field", "in the text"])
def test_reasoning_is_masked_where_it_is_rendered_and_counted_where_it_is_left_out(first):
    whole = "<think>\nEasy, I know.\n</think>\n\nIn Italy.<|im_end|>"
    assert spans_and_left_out("reasoning", [CHAT[0], first]) == ([whole], 0)
    empty = "<think>\n\n</think>\n\nIn Norway.<|im_end|>"
    assert spans_and_left_out("reasoning", [CHAT[0], first, CHAT[2], LOST]) == (["In Italy.<|im_end|>", empty], 1)


@pytest.mark.parametrize(("name", "before"), [("deepseek", ""), ("deepseek_switch", "")])
def test_reasoning_that_the_template_drops_is_no_part_of_the_answer(name, before):
    spans, dropped = spans_and_left_out(name, [CHAT[0], INLINE, CHAT[2], LOST])
    assert [span.strip() for span in spans] == ["In Italy.<｜end▁of▁sentence｜>", "In Norway.<｜end▁of▁sentence｜>"]
    assert dropped == 1


def test_a_block_of_reasoning_that_is_emptied_before_the_last_question():
    assert spans_and_left_out(
        "kimi_k2_thinking", [CHAT[0], THOUGHT, CHAT[2], {**LOST, "reasoning_content": "Hm."}]
    ) == (
        ["In Italy.<|im_end|>", "<think>Hm.</think>In Norway.<|im_end|>"],
        1,
    )


def test_reasoning_found_by_exchange_is_masked_with_what_stands_between_it_and_the_answer():
    render = renderer("reasoning")

    def no_prefix(messages, add_generation_prompt):
        return render(messages, False)

    full = render([CHAT[0], THOUGHT], False)
    (span,) = assistant_spans(no_prefix, full, [CHAT[0], THOUGHT], SPECIALS["reasoning"])
    assert full[slice(*span)] == "Easy, I know.\n</think>\n\nIn Italy.<|im_end|>"


CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"function": {"name": "where", "arguments": {"city": "Rome"}}}],
}


def test_tool_calls_are_what_the_model_wrote_and_their_results_are_not():
    messages = [CHAT[0], CALL, {"role": "tool", "content": "Italy"}, {"role": "assistant", "content": "In Italy."}]
    assert spans_of("reasoning", messages) == [
        '<think>\n\n</think>\n\n<tool_call>{"name": "where", "arguments": {"city": "Rome"}}</tool_call><|im_end|>',
        "<think>\n\n</think>\n\nIn Italy.<|im_end|>",
    ]


def test_tool_calls_of_an_earlier_turn_are_found_by_exchange():
    # Asked again, the reasoning block before the call is gone: no prefix proves its place.
    messages = [CHAT[0], CALL, {"role": "tool", "content": "Italy"}, CHAT[2], LOST]
    assert spans_of("reasoning", messages) == [
        '<tool_call>{"name": "where", "arguments": {"city": "Rome"}}</tool_call><|im_end|>',
        "<think>\n\n</think>\n\nIn Norway.<|im_end|>",
    ]


def test_tool_calls_that_the_template_does_not_render_are_refused():
    messages = [CHAT[0], CALL, {"role": "tool", "content": "Italy"}, CHAT[2], LOST]
    with pytest.raises(TemplateRefusedError, match="message 2: the place of its tool calls"):
        spans_of("empty_think", messages)
    # By prefixes the turn has a place, and nothing of the call in it.
    with pytest.raises(TemplateRefusedError, match="message 2: the place of its tool calls"):
        spans_of("llama3", messages)


@pytest.mark.parametrize("content", ["", "Let me see where."])
def test_tool_calls_that_leave_no_trace_are_refused_whatever_else_holds_their_name(content):
    # The name of the second, n, stands in the end of turn of most families.
    for name in ("where", "n"):
        call = {**CALL, "content": content, "tool_calls": [{"function": {"name": name, "arguments": {}}}]}
        messages = [CHAT[0], call, {"role": "tool", "content": "Italy"}, LOST]
        for family in ("chatml", "llama3", "deepseek_switch"):
            render = renderer(family)
            with pytest.raises(
                TemplateRefusedError, match="message 2: the chat template does not render its tool calls"
            ):
                refuse_lost_calls(render, render(messages, False), messages)
        render = renderer("reasoning")
        refuse_lost_calls(render, render(messages, False), messages)


def test_a_template_without_header_for_the_next_turn():
    assert spans_of("alternating", CHAT) == [m["content"] + "</s>" for m in CHAT if m["role"] == "assistant"]


def test_a_header_that_the_template_does_not_add_when_asked_is_not_trained_on():
    render = renderer("chatml")

    def deaf(messages, add_generation_prompt):
        return render(messages, False)

    full = render(CHAT, False)
    assert assistant_spans(deaf, full, CHAT, SPECIALS["chatml"]) == assistant_spans(
        render, full, CHAT, SPECIALS["chatml"]
    )


def test_a_template_that_rewrites_answers_is_refused():
    with pytest.raises(TemplateRefusedError, match=r"message 2: .* cannot be proven"):
        spans_of("unmaskable", CHAT)


def test_an_answer_that_holds_the_marker_of_the_method_is_refused_and_not_guessed():
    messages = [CHAT[0], {"role": "assistant", "content": "AerieExchangedThisAnswer"}, CHAT[2], CHAT[3]]
    render = renderer("empty_think")
    full = render(messages, False)
    with pytest.raises(TemplateRefusedError):
        assistant_spans(lambda m, g: render(m, g) if len(m) > 3 else "no prefix", full, messages + messages[:2], [])


def test_offsets_share_a_character_with_the_span():
    offsets = [(0, 4), (4, 6), (6, 6), (6, 9), (9, 12), (12, 13)]
    # A token without a character of its own (6, 6) counts with what surrounds it.
    assert mask_by_offsets(offsets, [(5, 9)]) == [0, 1, 1, 1, 0, 0]
    assert mask_by_offsets(offsets, [(0, 1), (12, 13)]) == [1, 0, 0, 0, 0, 1]
    assert mask_by_offsets(offsets, []) == [0] * 6


def test_without_offsets_an_edge_inside_a_token_is_refused():
    def pairs(text):
        return [hash(text[i : i + 2]) for i in range(0, len(text), 2)]

    assert mask_by_prefix_tokens(pairs, "abcdef", pairs("abcdef"), [(2, 4)]) == [0, 1, 0]
    with pytest.raises(TemplateRefusedError, match="character 3"):
        mask_by_prefix_tokens(pairs, "abcdef", pairs("abcdef"), [(2, 3)])

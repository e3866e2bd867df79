"""Which tokens a draft model is trained on: what the assistant said, and the token with which it ended its turn.

The end-of-turn token belongs to the mask here. The preprocessing of speculators 0.3.0 masks the content alone
(``preprocessing.py``, ``_create_loss_mask_from_offsets`` takes group 1 of its pattern, and the closing marker stands
outside that group). The target model generates that token too, and a draft that never learned it proposes something
else at the end of every answer, where the target then rejects it. Masks made by a template's own generation markers
commonly hold it as well.

Two ways to find the spans, both of which prove themselves on every conversation and refuse when they cannot:

* by prefixes: the rendering of the messages before an answer (with the header of the next turn) and of those up to and
  with it must both be beginnings of the whole rendering. What lies between is the answer with its end.
* by exchange, for templates that treat the last turn differently: an answer, with its reasoning where the template
  renders it, is exchanged for markers; everything around them must stay as it was.

Templates leave out reasoning, of earlier turns or of all: what is not rendered has no tokens, and ``left_out`` counts
it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Message = dict[str, Any]
Span = tuple[int, int]

# Letters only: no template trims, splits or escapes them, and no conversation holds them.
EXCHANGED = "AerieExchangedThisAnswer"
EXCHANGED_REASONING = "AerieExchangedThisReasoning"
# How reasoning stands in the text of an answer, where it has no field of its own.
REASONING_END = "</think>"


class TemplateRefusedError(Exception):
    """The chat template renders this conversation in a way that leaves no proof of which tokens are the answer."""


class Render(Protocol):
    """Renders messages as text, with the header of the next assistant turn when asked."""

    def __call__(self, messages: list[Message], add_generation_prompt: bool) -> str:
        """The text; whatever the template raises goes through."""


def _prefix_span(render: Render, full: str, messages: list[Message], number: int) -> Span | None:
    """The span of answer ``number`` by prefixes, None when a rendering is not a beginning of the whole."""
    try:
        before = render(messages[:number], True)
        if before == render(messages[:number], False):
            # The template adds no header when asked: the header would stand inside the span.
            return None
        after = render(messages[: number + 1], False)
    except Exception:  # noqa: BLE001 - templates raise what they like; the other way may still do
        return None
    if not (full.startswith(before) and full.startswith(after) and len(before) < len(after)):
        return None
    return (len(before), len(after)) if _holds_calls(after[len(before) :], messages[number]) else None


def _holds_calls(text: str, message: Message) -> bool:
    """Whether a span has the tool calls of its message: templates without tools pass over them."""
    calls = message.get("tool_calls") or []
    return all(str(call.get("function", call).get("name")) in text for call in calls)


def refuse_lost_calls(render: Render, full: str, messages: list[Message]) -> None:
    """Raise ``TemplateRefusedError`` for tool calls without which the rendering ``full`` would be the same.

    A name alone proves nothing: it may stand in the text of the answer, or in its end.
    """
    for number, message in enumerate(messages):
        if not message.get("tool_calls"):
            continue
        silent = {key: value for key, value in message.items() if key != "tool_calls"}
        try:
            other = render([*messages[:number], silent, *messages[number + 1 :]], False)
        except Exception:  # noqa: BLE001 - templates raise what they like, of an answer that is empty then
            other = ""
        if other == full:
            raise TemplateRefusedError(f"message {number + 1}: the chat template does not render its tool calls")


def reasoning_of(message: Message) -> str:
    """The reasoning of an answer: of its field, or of the block that its text begins with; empty when it has none."""
    if thought := message.get("reasoning_content"):
        return str(thought).strip()
    block = re.match(r"\s*<think>(.*?)</think>", message["content"], re.DOTALL)
    return block[1].strip() if block else ""


def left_out(full: str, messages: Sequence[Message]) -> int:
    """How many answers have a reasoning that the rendering ``full`` does not hold."""
    answers = [message for message in messages if message["role"] == "assistant"]
    return sum(bool(thought) and thought not in full for thought in map(reasoning_of, answers))


def _exchange_span(render: Render, full: str, messages: list[Message], number: int) -> Span | None:
    """The span of answer ``number`` by exchange, without its end; None when the rest did not stay."""
    message = messages[number]
    content, thought = message["content"].strip(), str(message.get("reasoning_content") or "").strip()
    # Without its tool calls: what then lies between the markers' surroundings is the text and the calls.
    exchanged = {"role": message["role"], "content": EXCHANGED}
    if thought:
        exchanged["reasoning_content"] = EXCHANGED_REASONING
    try:
        other = render([*messages[:number], exchanged, *messages[number + 1 :]], False)
    except Exception:  # noqa: BLE001 - as above
        return None
    if other.count(EXCHANGED) != 1 or other.count(EXCHANGED_REASONING) > 1:
        return None
    before, tail = other.split(EXCHANGED)
    head, rendered, between = before.partition(EXCHANGED_REASONING)
    if not (full.startswith(head) and full.endswith(tail)) or len(full) < len(head) + len(tail):
        return None
    span = len(head), len(full) - len(tail)
    text, answer = full[slice(*span)].strip(), content
    if rendered:
        # Templates trim reasoning in ways of their own.
        text, answer = "".join(text.split()), "".join((thought + between + content).split())
    if message.get("tool_calls"):
        return span if text.startswith(answer) and _holds_calls(text[len(answer) :], message) else None
    if rendered:
        return span if text == answer else None
    # Of an answer that holds its reasoning the template may keep what follows it; anything else must be there whole.
    return span if text in (content, content.split(REASONING_END)[-1].strip()) else None


def _end_of_turn(full: str, span: Span, specials: Sequence[str], grow: bool) -> Span:
    """Let the span end with the end-of-turn marker.

    A span by prefixes holds the marker and what separates turns: cut after its last special token, and
    without one after its last letter. A span by exchange ends before the marker: grow over the special token that
    follows at once.
    """
    start, end = span
    if grow:
        following = [special for special in specials if full.startswith(special, end)]
        return (start, end + max(map(len, following))) if following else span
    ends = [full.rfind(special, start, end) + len(special) for special in specials if special in full[start:end]]
    if ends:
        return start, max(ends)
    return start, start + len(full[start:end].rstrip())


def assistant_spans(render: Render, full: str, messages: list[Message], specials: Sequence[str]) -> list[Span]:
    """Character spans of every assistant answer in ``full``, each with its end-of-turn token.

    ``specials``: the texts of the tokenizer's special tokens. Raises ``TemplateRefusedError`` when neither way can
    prove a span, or when spans overlap.
    """
    spans: list[Span] = []
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        span = _prefix_span(render, full, messages, number)
        grow = span is None
        if span is None:
            span = _exchange_span(render, full, messages, number)
        if span is None:
            what = "the place of its tool calls" if message.get("tool_calls") else "its place"
            text = f"message {number + 1}: {what} in the rendered conversation cannot be proven for this chat template"
            raise TemplateRefusedError(text)
        span = _end_of_turn(full, span, specials, grow)
        if spans and span[0] < spans[-1][1]:
            raise TemplateRefusedError(f"message {number + 1}: overlaps the answer before it")
        spans.append(span)
    return spans


def mask_by_offsets(offsets: Sequence[Span], spans: Sequence[Span]) -> list[int]:
    """1 for every token that shares a character with a span, else 0; ``offsets`` as fast tokenizers give them.

    A token that reaches over the edge of a span counts, as in speculators: it carries a part of the answer.
    """
    mask = [0] * len(offsets)
    for start, end in spans:
        for position, (first, last) in enumerate(offsets):
            if first < end and last > start:
                mask[position] = 1
    return mask


def mask_by_prefix_tokens(
    encode: Callable[[str], list[int]], full: str, input_ids: Sequence[int], spans: Sequence[Span]
) -> list[int]:
    """The same for tokenizers that give no offsets (Kimi-K2's, for one): both edges of a span must fall between tokens.

    Proven by encoding the text up to each edge, which must be a beginning of ``input_ids``; else refused.
    """
    mask = [0] * len(input_ids)
    for span in spans:
        edges = []
        for edge in span:
            tokens = encode(full[:edge])
            if list(input_ids[: len(tokens)]) != tokens:
                raise TemplateRefusedError(f"no token ends at character {edge}, and this tokenizer gives no offsets")
            edges.append(len(tokens))
        mask[edges[0] : edges[1]] = [1] * (edges[1] - edges[0])
    return mask

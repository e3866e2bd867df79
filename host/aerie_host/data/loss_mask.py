"""Find the tokens that a draft model is trained on: the assistant's answers, each with its end-of-turn token.

The mask includes the end-of-turn token. The preprocessing of speculators 0.3.0 masks the content alone:
``_create_loss_mask_from_offsets`` in ``preprocessing.py`` takes group 1 of its pattern, and the closing marker is
outside that group. But the target model generates that token too. A draft model that never learned it proposes another
token at the end of every answer, and the target model rejects that. Masks from a template's own generation markers
usually include the token as well.

The span of an answer is found in one of two ways. Each proves its result for every conversation and refuses when it
cannot:

* By prefixes. Render the messages before the answer, with the header of the next turn, and the messages up to the
  answer and with it. Both must be prefixes of the whole rendering. The text between their ends is the answer with its
  end.
* By exchange, for templates that treat the last turn differently. Replace the answer, and its reasoning where the
  template renders it, by markers. Everything around them must stay the same.

Templates may leave out reasoning, of earlier turns or of all. Text that is not rendered has no tokens; ``left_out``
counts such answers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Message = dict[str, Any]
Span = tuple[int, int]

# Markers of letters only: no template trims, splits or escapes them, and no conversation contains them.
EXCHANGED = "AerieExchangedThisAnswer"
EXCHANGED_REASONING = "AerieExchangedThisReasoning"
# Ends the reasoning in the text of an answer, where reasoning has no field of its own.
REASONING_END = "</think>"


class TemplateRefusedError(Exception):
    """It cannot be proven which tokens of the rendered conversation are the answers. The message says why."""


class Render(Protocol):
    """Renders messages as text, with the header of the next assistant turn if ``add_generation_prompt``."""

    def __call__(self, messages: list[Message], add_generation_prompt: bool) -> str:
        """The text. Exceptions of the template are not caught."""


def _prefix_span(render: Render, full: str, messages: list[Message], number: int) -> Span | None:
    """The span of answer ``number`` by prefixes; None when a rendering is no prefix of the whole."""
    try:
        before = render(messages[:number], True)
        if before == render(messages[:number], False):
            # The template adds no header: the answer's header would be part of the span.
            return None
        after = render(messages[: number + 1], False)
    except Exception:  # noqa: BLE001 - templates raise anything; the other way may still work
        return None
    if not (full.startswith(before) and full.startswith(after) and len(before) < len(after)):
        return None
    return (len(before), len(after)) if _holds_calls(after[len(before) :], messages[number]) else None


def _holds_calls(text: str, message: Message) -> bool:
    """Whether a span contains the tool calls of its message: templates without tools leave them out."""
    calls = message.get("tool_calls") or []
    return all(str(call.get("function", call).get("name")) in text for call in calls)


def refuse_lost_calls(render: Render, full: str, messages: list[Message]) -> None:
    """Raise ``TemplateRefusedError`` for tool calls that do not change the rendering ``full``.

    That the name of a tool is in the rendering proves nothing: it may be part of the answer's text.
    """
    for number, message in enumerate(messages):
        if not message.get("tool_calls"):
            continue
        silent = {key: value for key, value in message.items() if key != "tool_calls"}
        try:
            other = render([*messages[:number], silent, *messages[number + 1 :]], False)
        except Exception:  # noqa: BLE001 - templates raise anything, for the now empty answer too
            other = ""
        if other == full:
            raise TemplateRefusedError(f"message {number + 1}: the chat template does not render its tool calls")


def reasoning_of(message: Message) -> str:
    """The reasoning of an answer, from its field or from a block at the start of its text; empty when it has none."""
    if thought := message.get("reasoning_content"):
        return str(thought).strip()
    block = re.match(r"\s*<think>(.*?)</think>", message["content"], re.DOTALL)
    return block[1].strip() if block else ""


def left_out(full: str, messages: Sequence[Message]) -> int:
    """How many answers have a reasoning that the rendering ``full`` does not contain."""
    answers = [message for message in messages if message["role"] == "assistant"]
    return sum(bool(thought) and thought not in full for thought in map(reasoning_of, answers))


def _exchange_span(render: Render, full: str, messages: list[Message], number: int) -> Span | None:
    """The span of answer ``number`` by exchange, without its end; None when anything else changed."""
    message = messages[number]
    content, thought = message["content"].strip(), str(message.get("reasoning_content") or "").strip()
    # The exchanged message has no tool calls: the span then covers both the text and the calls.
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
        # Templates trim reasoning differently.
        text, answer = "".join(text.split()), "".join((thought + between + content).split())
    if message.get("tool_calls"):
        return span if text.startswith(answer) and _holds_calls(text[len(answer) :], message) else None
    if rendered:
        return span if text == answer else None
    # The template may drop the reasoning at the start of an answer's text. The rest must be rendered whole.
    return span if text in (content, content.split(REASONING_END)[-1].strip()) else None


def _end_of_turn(full: str, span: Span, specials: Sequence[str], grow: bool) -> Span:
    """The span with its end moved to the end of the end-of-turn marker.

    A span by prefixes contains the marker and the separator of turns: it is cut after its last special token, or after
    its last letter when it has none. A span by exchange (``grow``) ends before the marker: it grows over the special
    token that follows directly.
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
    """Character spans of all assistant answers in ``full``, each with its end-of-turn token.

    ``specials``: the texts of the tokenizer's special tokens. ``TemplateRefusedError`` when neither way proves a span,
    or when spans overlap.
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
    """The loss mask: 1 for every token that shares a character with a span, else 0.

    ``offsets``: the characters of each token, as fast tokenizers return them. A token that crosses the edge of a span
    counts, as in speculators: it is a part of the answer.
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
    """The loss mask for tokenizers without offsets, such as Kimi-K2's: each edge of a span must be between two tokens.

    Proof: the encoded text up to the edge must be a prefix of ``input_ids``, else ``TemplateRefusedError``.
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

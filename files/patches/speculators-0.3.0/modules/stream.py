# SPDX-License-Identifier: Apache-2.0
"""Prefill any number of sequences, with the rows of each step handed on as they come home.

Beside ``VllmHiddenStatesGenerator.generate``, which returns the states of one batch: here
the engine gets its next step before the reply to the last one is read, and who reads the
rows does so while it runs.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request, RequestStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .slabs import Rows

__all__ = ["stream"]

# Steps whose replies are not read: one is being launched, one waits for that. The model runs behind the launches.
AHEAD = 2


def stream(
    generator: Any, sequences: Iterable[tuple[str, list[int]]], free_slab: Callable[[], int]
) -> Iterator[list[Rows]]:
    """Prefill sequences; yield rows that lie in ``generator.slabs``, at most once for each step.

    A sequence is complete with the row of its last position. Positions come in order;
    those of a pre-empted sequence start again.

    Args:
        generator: a ``VllmHiddenStatesGenerator``, not used otherwise meanwhile.
        sequences: name and token ids of each, taken as the engine has room for them;
            no name twice among those under way.
        free_slab: returns a slab that nobody reads any more, and may wait for one. The
            engine itself holds up to three when it asks: it needs four.

    Raises:
        ValueError: a sequence is empty, too long, or has a token outside the vocabulary.
        RuntimeError: a worker failed, or the key/value cache is too small.
    """
    scheduler, executor = generator.scheduler, generator.executor
    # What a failed call left behind must not be scheduled with this one.
    scheduler.finish_requests(list(scheduler.requests), RequestStatus.FINISHED_ABORTED)
    executor.collective_rpc("_reset_capture")
    at_once = generator.vllm_config.scheduler_config.max_num_seqs
    source = iter(sequences)
    # A tokenizer takes longer to answer this than a request takes to be made.
    end = generator.tokenizer.eos_token_id
    ahead: deque[tuple[Any, Any]] = deque()
    try:
        while True:
            while len(scheduler.waiting) < at_once and (entry := next(source, None)):
                scheduler.add_request(_request(generator, end, *entry))
            if len(ahead) < AHEAD and scheduler.has_requests():
                scheduled = scheduler.schedule()
                tokens = scheduled.total_num_scheduled_tokens
                if not tokens and not ahead and scheduler.has_unfinished_requests():
                    raise RuntimeError("the key/value cache is too small for one sequence")
                # A step without tokens tells the workers which requests ended.
                reply = executor.collective_rpc(
                    "_capture_step",
                    args=(scheduled, free_slab() if tokens else 0),
                    non_block=True,
                    unique_reply_rank=0,
                )
                ahead.append((scheduled, reply))
                if len(ahead) < AHEAD and scheduler.has_requests():
                    continue
            if not ahead:
                return
            scheduled, reply = ahead.popleft()
            output, captured = reply.result()
            scheduler.update_from_output(scheduled, output)
            if captured.rows:
                yield captured.rows
    finally:
        # Replies that nobody reads would be taken for those of the next call.
        for _, reply in ahead:
            with contextlib.suppress(Exception):
                reply.result()


def _request(generator: Any, end: int | None, name: str, token_ids: list[int]) -> Request:
    config = generator.vllm_config.model_config
    vocabulary = config.get_vocab_size()
    # One position is kept for the token that a prefill samples.
    longest = config.max_model_len - 1
    if not 0 < len(token_ids) <= longest or min(token_ids) < 0 or max(token_ids) >= vocabulary:
        raise ValueError(f"sequence {name}: expected 1 to {longest} token ids in [0, {vocabulary - 1}]")
    return Request(
        request_id=name,
        prompt_token_ids=token_ids,
        sampling_params=SamplingParams(max_tokens=1, temperature=0.0),
        pooling_params=None,
        eos_token_id=end,
        arrival_time=0.0,
    )

"""What the worker's side of a capture says to the driver, without model or GPU: its steps and copies are made up."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
from speculators.data_generation.layer_capture import AWAY, LayerCapture, Step
from speculators.data_generation.slabs import SLABS, Rows
from speculators.data_generation.stream import AHEAD


class Copy:
    """An event behind a copy that is done only when somebody waits for it."""

    def __init__(self):
        self.done = False

    def query(self):
        return self.done

    def synchronize(self):
        self.done = True


@pytest.fixture
def worker():
    """A worker whose steps hold two sequences: one ends with the step, one goes on after it."""

    class Worker(LayerCapture):
        def execute_model(self, step):
            assert self.model_runner.execute_model_state is None
            if not step.total_num_scheduled_tokens:
                return "nothing to run"
            self.model_runner.execute_model_state = "logits"
            self._steps.append(Step([Rows("a", self._slab, 0, 0, 4)], []))
            return None

    made = Worker()
    batch = SimpleNamespace(num_reqs=2, req_ids=["a", "b"], req_id_to_index={"a": 0, "b": 1})
    made.model_runner = SimpleNamespace(
        execute_model_state=None,
        input_batch=batch,
        discard_request_mask=SimpleNamespace(np=np.array([False, True, True])),
    )
    made._steps = deque()
    made._stream = SimpleNamespace(record_event=Copy)
    return made


def step(tokens):
    return SimpleNamespace(total_num_scheduled_tokens=tokens)


def test_no_token_is_sampled_and_only_sequences_that_end_get_one(worker):
    output, _ = worker._capture_step(step(8), 0)
    assert output.req_ids == ["a", "b"]
    assert output.req_id_to_index == {"a": 0, "b": 1}
    assert output.sampled_token_ids == [[0], []]
    # What comes with the reply is not the worker's own, which the next step changes.
    worker.model_runner.input_batch.req_ids.clear()
    assert output.req_ids == ["a", "b"]
    worker._capture_step(step(8), 1)


def test_slow_copies_never_take_every_slab(worker):
    """Were steps let out until they come home by themselves, the driver would wait for a slab for ever."""
    handed_on = []
    for number in range(50):
        _, captured = worker._capture_step(step(8), number)
        handed_on += [rows.slab for rows in captured.rows]
        assert number - len(handed_on) < AWAY
    assert handed_on == list(range(50 - AWAY))
    # The driver asks for a slab while replies are unread; one is left for those who read.
    assert AWAY + AHEAD < SLABS


def test_a_step_without_tokens_waits_for_all_rows(worker):
    worker._capture_step(step(8), 0)
    output, captured = worker._capture_step(step(0), 1)
    assert output == "nothing to run"
    assert [rows.slab for rows in captured.rows] == [0]

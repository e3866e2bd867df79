"""What the rung truth says of an engine that gave up, read from its log."""

from __future__ import annotations

import pytest

from aerie_host.truth.command import _cause

TRACE = """asked for: one sequence
asked for: the same call again
(Worker pid=7) ValueError: of a worker
Traceback (most recent call last):
  File "/env/vllm/v1/engine.py", line 3, in generate
    self.pool.cache(1)
  File "/env/vllm/v1/core/block_pool.py", line 41, in cache
    assert request.block_hashes
{}
INFO ended
"""


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            TRACE.format("AssertionError"),
            "asked for 'the same call again': AssertionError in cache, block_pool.py line 41",
        ),
        (TRACE.format("RuntimeError: 1 of 2 rows"), "asked for 'the same call again': RuntimeError: 1 of 2 rows"),
        ("TypeError: at once\n", "TypeError: at once"),
        ("killed\n\n", "killed"),
        ("", "it ended without a word"),
    ],
)
def test_the_cause(log: str, cause: str) -> None:
    assert _cause(log) == cause

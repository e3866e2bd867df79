"""Run one step of the audit in a child process, so that a second core does it at the same time."""

from __future__ import annotations

import json
import os
import traceback
from typing import Any, Callable

Step = Callable[[], "dict[str, Any]"]


class ChildStep:
    """A step in a child process; its result is plain data. Call ``result()`` exactly once."""

    def __init__(self, step: Step) -> None:
        self._read, write = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._read)
            _answer(step, write)
        os.close(write)

    def result(self) -> dict[str, Any]:
        """Wait for the step. Raises ``OSError`` with the child's traceback when it failed."""
        with os.fdopen(self._read, "rb") as pipe:
            answer = pipe.read()
        os.waitpid(self._child, 0)
        document: dict[str, Any] = json.loads(answer or b'{"error": "the child process died"}')
        if "error" in document:
            raise OSError(document["error"])
        return document


def _answer(step: Step, write: int) -> None:
    code = 1
    try:
        try:
            text = json.dumps(step())
        except Exception:  # noqa: BLE001  (the parent reports it)
            text = json.dumps({"error": traceback.format_exc(limit=3)})
        with os.fdopen(write, "wb") as pipe:
            pipe.write(text.encode())
        code = 0
    finally:
        # Not sys.exit: nothing of the parent's clean-up may run twice.
        os._exit(code)

"""Run functions in forked children of a warm interpreter: none can hide another, not even by dying of a signal."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Answer:
    """What one child gave back: ``value`` when it ended well, else ``error``."""

    name: str
    value: Any = None
    error: str = ""
    file: str = ""
    line: int = 0
    seconds: float = 0.0
    warnings: list[dict[str, Any]] = field(default_factory=list)


Task = tuple[str, Callable[[], Any]]


@dataclass
class _Child:
    name: str
    pid: int
    pipe: int
    started: float
    answer: bytes = b""


def run(tasks: list[Task], width: int, timeout: float) -> list[Answer]:
    """Run each task in a child, ``width`` at a time; answers in the order of the tasks.

    A task's value must be JSON data. One that takes longer than ``timeout`` seconds is ended and says so.
    """
    waiting, answers = list(tasks), {}
    running: dict[int, _Child] = {}
    with selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and len(running) < width:
                child = _start(*waiting.pop(0))
                running[child.pipe] = child
                selector.register(child.pipe, selectors.EVENT_READ)
            for key, _ in selector.select(timeout=0.5):
                child = running[key.fd]
                chunk = os.read(key.fd, 65536)
                child.answer += chunk
                if not chunk:
                    answers[child.name] = _end(child)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    del running[key.fd]
            for child in running.values():
                if time.monotonic() - child.started > timeout:
                    # Its pipe closes with it, and the loop above takes down what it was.
                    os.kill(child.pid, signal.SIGKILL)
    return [answers[name] for name, _ in tasks]


def _start(name: str, function: Callable[[], Any]) -> _Child:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _work(function, write)
    os.close(write)
    return _Child(name, pid, read, time.monotonic())


def _work(function: Callable[[], Any], write: int) -> None:
    code = 1
    try:
        document: dict[str, Any] = {}
        with catching() as caught:
            try:
                document["value"] = function()
            except BaseException as error:  # noqa: BLE001 - a SystemExit at import is a finding like any other
                document.update(describe(error))
        document["warnings"] = caught
        with os.fdopen(write, "w", encoding="utf-8") as pipe:
            json.dump(document, pipe)
        code = 0
    finally:
        # Not sys.exit: what the parent registered to run at its end must not run here.
        os._exit(code)


def _end(child: _Child) -> Answer:
    _, status = os.waitpid(child.pid, 0)
    seconds = time.monotonic() - child.started
    if child.answer:
        return Answer(child.name, seconds=seconds, **json.loads(child.answer))
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Answer(child.name, error=f"ended by signal {signal.Signals(number).name}", seconds=seconds)
    return Answer(child.name, error=f"ended with code {os.WEXITSTATUS(status)} and no answer", seconds=seconds)


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as text, with the deepest place in Python source that it passed."""
    text = str(error).strip() or repr(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = [frame for frame in frames if not frame.filename.startswith("<frozen")]
    return {
        "error": f"{type(error).__name__}: {text[:1500]}",
        "file": place[-1].filename if place else "",
        "line": (place[-1].lineno or 0) if place else 0,
    }


@contextlib.contextmanager
def catching() -> Iterator[list[dict[str, Any]]]:
    """Collect every warning raised inside as plain data, repeats counted once per place."""
    found: list[dict[str, Any]] = []

    def take(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
        parts = Path(filename).parts
        inside = "site-packages" in parts
        short = "/".join(parts[parts.index("site-packages") + 1 :]) if inside else filename
        found.append({"category": category.__name__, "message": str(message)[:500], "file": short, "line": lineno})

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = take  # type: ignore[assignment]  # it is called by position only
        yield found

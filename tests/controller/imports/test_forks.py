"""Forked children: one failure hides no other, whatever its kind."""

from __future__ import annotations

import os
import signal
import time
import warnings
from typing import Any

from aerie_host.imports import forks


def fails() -> None:
    raise ImportError("no name x")


def leaves() -> None:
    raise SystemExit(3)


def dies() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def hangs() -> None:
    time.sleep(60)


def warns() -> str:
    for _ in range(3):
        warnings.warn("old name", DeprecationWarning, stacklevel=1)
    return "done"


def test_each_task_answers_for_itself_in_the_order_asked() -> None:
    tasks: list[forks.Task] = [
        ("fails", fails), ("good", lambda: {"a": [1]}), ("leaves", leaves), ("dies", dies), ("hangs", hangs),
        ("large", lambda: "x" * 300_000), ("warns", warns),
    ]  # fmt: skip
    answers = {one.name: one for one in forks.run(tasks, 3, timeout=1.0)}
    assert list(answers) == [name for name, _ in tasks]
    assert answers["good"].value == {"a": [1]}
    assert answers["good"].error == ""
    assert answers["fails"].error == "ImportError: no name x"
    assert answers["fails"].file == __file__
    assert answers["fails"].line > 0
    assert "SystemExit: 3" in answers["leaves"].error
    assert answers["dies"].error == "ended by signal SIGUSR1"
    assert answers["hangs"].error == "ended by signal SIGKILL"
    assert len(answers["large"].value) == 300_000
    assert [one["message"] for one in answers["warns"].warnings] == ["old name"]


def test_children_run_side_by_side() -> None:
    def pid() -> int:
        return os.getpid()

    answers = forks.run([(str(number), pid) for number in range(5)], 2, timeout=30)
    assert len({one.value for one in answers} | {os.getpid()}) == 6


def test_warnings_outside_are_collected_and_the_filters_come_back() -> None:
    before: Any = warnings.showwarning
    with forks.catching() as found:
        warnings.warn("careful", UserWarning, stacklevel=1)
    assert warnings.showwarning is before
    assert found[0]["category"] == "UserWarning"
    assert found[0]["line"] > 0

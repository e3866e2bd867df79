"""The list of checks exists twice, once for each interpreter that makes one: both must stay alike."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from aerie_host.shared import checks as host
from ansible.module_utils.aerie.module_io import checks as module

TWINS = (host, module)


def both(use: Any) -> Any:
    """What ``use`` gives with one of them, and that it gives the same with the other."""
    one, other = (use(twin) for twin in TWINS)
    assert one == other
    return one


def some(twin: Any) -> Any:
    checks = twin.Checks()
    checks.add("added", "warn", 1.5, None, "do this", "file.py", 3, 0.12345)
    checks.add("bare", "n/a", "", "")
    checks.require("holds", True, ["x"], {"y": 1})
    checks.require("breaks", False, "found", "wanted", remedy="mend it", line=0, seconds=0)
    checks.require("breaks too", False, b"bytes", ValueError("text"))
    return checks


def test_the_statuses() -> None:
    assert both(lambda twin: twin.STATUSES)[0] == "pass"


@pytest.mark.parametrize("name", ["add", "require", "as_list", "failed", "__len__"])
def test_the_calls(name: str) -> None:
    def signature(twin: Any) -> str:
        method = vars(twin.Checks)[name]
        return str(inspect.signature(getattr(method, "fget", method)))

    assert both(signature)


def test_the_public_names() -> None:
    """The module's side has besides what ends an Ansible module."""
    names = [{name for name in vars(twin.Checks) if not name.startswith("__")} for twin in TWINS]
    assert names[0] == names[1]
    functions = [
        {name for name, one in inspect.getmembers(twin, inspect.isfunction) if one.__module__ == twin.__name__}
        for twin in TWINS
    ]
    assert functions[1] - functions[0] == {"finish"}
    assert functions[0] <= functions[1]


def test_the_same_calls_give_the_same_entries() -> None:
    entries = both(lambda twin: some(twin).as_list())
    assert [entry["status"] for entry in entries] == ["warn", "n/a", "pass", "fail", "fail"]
    assert both(lambda twin: some(twin).failed) == entries[3:]
    assert both(lambda twin: len(some(twin))) == 5


def test_what_is_given_back_is_the_same() -> None:
    assert both(lambda twin: twin.Checks().add("x", "pass", 1, 2))["found"] == "1"
    assert both(lambda twin: twin.Checks().require("x", 0, 1, 2)) == 0


def test_an_unknown_status_is_refused_in_the_same_words() -> None:
    def refusal(twin: Any) -> str:
        with pytest.raises(ValueError, match="status 'passed'") as caught:
            twin.Checks().add("x", "passed", 1, 2)
        return str(caught.value)

    both(refusal)


def test_the_message_of_a_failure() -> None:
    assert "2 of 5 checks failed: breaks: found found" in both(lambda twin: twin.failure_message(some(twin)))
    assert "no check was run" in both(lambda twin: twin.failure_message(twin.Checks()))


def test_the_message_when_nothing_failed() -> None:
    def fine(twin: Any) -> str:
        checks = twin.Checks()
        checks.add("x", "pass", 1, 1)
        return str(twin.failure_message(checks))

    assert both(fine) == "0 of 1 checks failed"

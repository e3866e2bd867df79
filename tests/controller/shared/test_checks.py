"""Checks and refusals: one definition for the host's Python and the ML environment's."""

from __future__ import annotations

import pickle

import pytest

from aerie_host.shared import checks as host
from aerie_host.shared.checks import Check, Checks, failure_message
from aerie_host.shared.refusal import Refusal, UsageRefusal
from ansible.module_utils.aerie.shared import checks as module


def some() -> Checks:
    checks = Checks()
    checks.add("added", "warn", 1.5, None, "do this", "file.py", 3, 0.12345)
    checks.add("bare", "n/a", "", "")
    checks.require("holds", True, ["x"], {"y": 1})
    checks.require("breaks", False, "found", "wanted", remedy="mend it", line=0, seconds=0)
    checks.require("breaks too", False, b"bytes", ValueError("text"))
    return checks


def test_both_interpreters_read_the_same_file() -> None:
    assert host.__file__ is not None
    assert module.__file__ is not None
    with open(host.__file__) as one, open(module.__file__) as other:  # noqa: PTH123 - two short reads
        assert one.read() == other.read()


def test_checks_become_plain_data() -> None:
    entries = some().as_list()
    assert [entry["status"] for entry in entries] == ["warn", "n/a", "pass", "fail", "fail"]
    assert entries[0] == {
        "name": "added", "status": "warn", "found": "1.5", "wanted": "None", "remedy": "do this", "file": "file.py",
        "line": 3, "seconds": 0.123,
    }  # fmt: skip
    assert entries[1] == {"name": "bare", "status": "n/a", "found": "", "wanted": "", "remedy": ""}
    assert (entries[3]["line"], entries[3]["seconds"]) == (0, 0)


def test_the_failed_ones_keep_their_order() -> None:
    assert [check.name for check in some().failed] == ["breaks", "breaks too"]
    assert len(some()) == 5


def test_require_says_whether_it_holds() -> None:
    assert Checks().require("x", True, 1, 2) is True
    assert Checks().require("x", False, 1, 2) is False


def test_an_unknown_status_is_refused() -> None:
    with pytest.raises(ValueError, match="status 'passed' is none of pass, fail, warn, n/a"):
        Checks().add("x", "passed", 1, 2)


def test_the_message_names_the_first_failure() -> None:
    message = failure_message(some())
    assert message == "2 of 5 checks failed: breaks: found found, wanted wanted. Remedy: mend it"
    assert "no check was run" in failure_message(Checks())
    checks = Checks()
    checks.add("x", "pass", 1, 1)
    assert failure_message(checks) == "0 of 1 checks failed"


def test_a_refusal_is_a_failed_check_and_a_sentence() -> None:
    refusal = Refusal("chat template", "none", "one that renders answers", "name a file", "tokenizer_config.json")
    assert str(refusal) == "chat template: none; wanted one that renders answers. Remedy: name a file"
    assert refusal.as_check() == Check(
        "chat template", "fail", "none", "one that renders answers", "name a file", "tokenizer_config.json"
    )
    assert str(Refusal("model", "no config.json")) == "model: no config.json"


def test_a_refusal_crosses_processes_whole() -> None:
    refusal = pickle.loads(pickle.dumps(UsageRefusal("shard", "3/2", "i/n", "for example 2/8")))  # noqa: S301
    assert isinstance(refusal, UsageRefusal)
    assert (refusal.name, refusal.found, refusal.wanted, refusal.remedy) == ("shard", "3/2", "i/n", "for example 2/8")

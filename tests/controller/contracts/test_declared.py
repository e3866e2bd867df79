"""Declared contracts: calls, definitions and source forms."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from ansible.module_utils.aerie.contracts.declared import ContractError, Evaluator, kind_of
from ansible.module_utils.aerie.contracts.source_tree import SourceTree

if TYPE_CHECKING:
    from pathlib import Path

ENGINE = '''
class Config:
    asynchronous: bool = True

class Executor:
    def __init__(self, vllm_config, monitor=True):
        self.failed = False

    def collective_rpc(self, method, args=(), unique_reply_rank=None) -> "int | None":
        """Returns single result if
        unique_reply_rank is provided, otherwise list."""

class Child(Executor):
    pass
'''
OURS = """
from vllm.engine import Child, Config

SIZE = 16

class Generator:
    def __init__(self, config):
        self.executor = Child(config, monitor=False)
        self.config = Config()

    def go(self):
        self.executor.collective_rpc("a", unique_reply_rank=0)
        self.executor.collective_rpc("b", (SIZE,), unique_reply_rank=SIZE)
"""


@pytest.fixture
def evaluator(tmp_path: Path) -> Evaluator:
    for name, text in {
        "vllm/__init__.py": "",
        "vllm/engine.py": ENGINE,
        "ours/__init__.py": "",
        "ours/g.py": OURS,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    return Evaluator(SourceTree(tmp_path))


def test_the_test_files_are_read(evaluator: Evaluator) -> None:
    assert len(evaluator.reading("ours/g.py").sites()) == 4


@pytest.mark.parametrize(
    "contract",
    [
        {"call": "vllm.engine.Child", "in": "ours/g.py", "passes": {"monitor": False, "vllm_config": "any"}},
        {"call": "vllm.engine.Child.collective_rpc", "in": "ours/g.py", "passes": {"unique_reply_rank": "any"}},
        {"call": "vllm.engine.Config", "in": "ours/g.py", "passes": {"asynchronous": "absent"}},
        {"defines": "vllm.engine.Config.asynchronous"},
        {"defines": "vllm.engine.Child.failed"},
        {"defines": "vllm.engine.Child.collective_rpc", "parameters": ["method", "args"], "returns": r"\| None"},
        {"source": "vllm.engine", "pattern": "class Child", "says": "there is a child"},
        {
            "source": "vllm.engine.Executor.collective_rpc",
            "pattern": r"single result if\s+unique",
            "says": "one reply",
        },
        {"source": "vllm.engine.Child", "pattern": "single result", "says": "not here", "absent": True},
    ],
)
def test_contracts_that_hold(evaluator: Evaluator, contract: dict[str, Any]) -> None:
    findings = evaluator.evaluate(contract, "0001-x")
    assert findings
    assert [finding for finding in findings if finding.status == "fail"] == []


@pytest.mark.parametrize(
    ("contract", "line", "found"),
    [
        ({"call": "vllm.engine.Child", "in": "ours/g.py", "passes": {"monitor": True}}, 8, "monitor=…): False"),
        ({"call": "vllm.engine.Child", "in": "ours/g.py", "passes": {"monitor": 0}}, 8, "False"),
        ({"call": "vllm.engine.Child", "in": "ours/g.py", "passes": {"vllm_config": None}}, 8, "config"),
        ({"call": "vllm.engine.Config", "in": "ours/g.py", "passes": {"asynchronous": False}}, 9, "not given"),
        ({"call": "vllm.engine.Gone", "in": "ours/g.py", "passes": {"a": 1}}, 1, "nothing of that name"),
        ({"call": "vllm.engine.Child", "in": "ours/gone.py", "passes": {"a": 1}}, 1, "no file ours/gone.py"),
        ({"call": "vllm.engine.Executor", "in": "ours/g.py", "passes": {"a": 1}}, 1, "no call of it in the file"),
        ({"defines": "vllm.engine.Child.gone"}, 1, "nothing of that name"),
        ({"defines": "vllm.engine.Child.collective_rpc", "parameters": ["timeout"]}, 9, "no parameter timeout"),
        ({"defines": "vllm.engine.Child.collective_rpc", "returns": "^list"}, 9, "another return form"),
        (
            {"source": "vllm.engine", "pattern": "class Gone", "says": "it is there"},
            1,
            "nothing in vllm.engine reads so",
        ),
        ({"source": "vllm.engine", "pattern": "single", "says": "no", "absent": True}, 10, "line 10 reads so"),
    ],
)
def test_contracts_that_break_say_where(evaluator: Evaluator, contract: dict[str, Any], line: int, found: str) -> None:
    (bad,) = [finding for finding in evaluator.evaluate(contract, "0001-x") if finding.status == "fail"]
    assert bad.line == line
    assert found in bad.found
    assert bad.name.startswith("0001-x: ")
    assert "0001-x" in bad.remedy


def test_each_call_site_is_checked(evaluator: Evaluator) -> None:
    contract = {"call": "vllm.engine.Executor.collective_rpc", "in": "ours/g.py", "passes": {"unique_reply_rank": 0}}
    findings = evaluator.evaluate(contract, "p")
    assert [(finding.status, finding.line) for finding in findings] == [("pass", 12), ("fail", 13)]
    assert "16" in findings[1].found, "a module constant is read as its value"


@pytest.mark.parametrize(
    "contract",
    [
        {},
        {"call": "a.b", "defines": "a.b"},
        {"call": "a.b", "in": "x.py"},
        {"defines": "a.b", "paramters": ["x"]},
        {"source": "a.b", "pattern": "x"},
    ],
)
def test_a_contract_written_wrongly_is_refused(contract: dict[str, Any]) -> None:
    with pytest.raises(ContractError):
        kind_of(contract)

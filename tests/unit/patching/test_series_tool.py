"""The maintainers' commands, on a small wheel and a copy of the checkout's layout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ansible.module_utils.aerie.patching.dist import sha256
from ansible.module_utils.aerie.patching.engine import run
from ansible.module_utils.aerie.patching.request import Request
from tools import series as command
from tools import serieskit
from tools.serieskit import load

from .helpers import HEADER, PRISTINE, Env, Maker, build_wheel, failed, make_patch, standard


def write(folder: Path, maker: Maker) -> Path:
    """A series directory on disk."""
    raw = maker.raw()
    directory = folder / "files/patches" / raw["name"]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "series.yml").write_text(yaml.safe_dump(raw["document"], sort_keys=False))
    for name, text in raw["texts"].items():
        (directory / f"{name}.patch").write_text(text, newline="")
    for name, text in raw["modules"].items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    return directory


class Checkout:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.wheel = build_wheel(root, "demo", "1.0", PRISTINE)
        self.maker = standard()
        for entry in self.maker.entries:
            entry["test"] = "tests/test_it.py::test_fails_without"
        (root / "tests").mkdir()
        (root / "tests/test_it.py").write_text(
            "class TestOther:\n    def test_in(self): ...\ndef test_fails_without(): ...\n"
        )
        self.directory = write(root, self.maker)

    def rewrite(self) -> None:
        for file in self.directory.glob("*.patch"):
            file.unlink()
        write(self.root, self.maker)

    def lint(self, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
        code = command.main(["lint", str(self.directory), "--wheel", str(self.wheel)])
        return code, capsys.readouterr().out.splitlines()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setattr(serieskit, "ROOT", tmp_path)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    return Checkout(tmp_path)


def test_a_good_series_has_no_fault(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    assert checkout.lint(capsys) == (0, ["1 series, no fault"])


def header(old: str, new: str) -> object:
    return lambda maker: maker.texts.update({"0001-first": maker.texts["0001-first"].replace(old, new, 1)})


def entry(**keys: object) -> object:
    return lambda maker: maker.entries[0].update(keys)


def grep(file: str, pattern: str, **more: object) -> object:
    return entry(probes={"grep": [{"file": file, "pattern": pattern, **more}]})


def swap(maker: Maker) -> None:
    maker.entries[0], maker.entries[1] = maker.entries[1], maker.entries[0]


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


def other_release(checkout: Checkout, folder: str, files: dict[str, bytes]) -> str:
    (checkout.root / folder).mkdir()
    return str(build_wheel(checkout.root / folder, "demo", "2.0", files))


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


def test_refresh_rewrites_line_numbers_and_digests(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    files = {**PRISTINE, "demo/worker.py": b"# new\n# lines\n" + PRISTINE["demo/worker.py"]}
    wheel = other_release(checkout, "two", files)
    assert command.main(["refresh", "--series", str(checkout.directory), "--wheel", wheel]) == 0
    assert capsys.readouterr().out == "rewrote 0002-second.patch, series.yml\n"
    text = (checkout.directory / "0002-second.patch").read_text()
    assert text.startswith(HEADER)
    assert "@@ -10,3 +10,3 @@" in text
    assert sha256(files["demo/worker.py"]) in (checkout.directory / "series.yml").read_text()
    assert command.main(["lint", str(checkout.directory), "--wheel", wheel]) == 0
    assert command.main(["refresh", "--series", str(checkout.directory), "--wheel", wheel]) == 0
    assert "nothing to refresh" in capsys.readouterr().out


def test_refresh_after_a_patch_was_dropped(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    checkout.maker.entries.pop(0)
    checkout.maker.texts.pop("0001-first")
    checkout.rewrite()
    assert checkout.lint(capsys)[0] == 1  # the second patch counts on the line that the first adds
    assert command.main(["refresh", "--series", str(checkout.directory), "--wheel", str(checkout.wheel)]) == 0
    assert checkout.lint(capsys) == (0, ["rewrote 0002-second.patch", "1 series, no fault"])


def test_refresh_writes_nothing_but_line_numbers(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    name = "0002-second"
    # The same edit in two hunks that a diff would write as one, and a note behind the line numbers.
    path, before = "demo/worker.py", PRISTINE["demo/worker.py"]
    lines = before.decode().splitlines(keepends=True)
    text = f"{HEADER}--- a/{path}\n+++ b/{path}\n@@ -8,2 +8,2 @@ class Worker\n {lines[7]}-{lines[8]}+worker_9 = 99\n"
    text += f"@@ -10,2 +10,3 @@\n {lines[9]}+worker_10b = 1\n {lines[10]}"
    checkout.maker.texts[name] = text
    checkout.rewrite()
    refresh = ["refresh", "--series", str(checkout.directory), "--wheel"]
    assert command.main([*refresh, str(checkout.wheel)]) == 0
    assert capsys.readouterr().out == "nothing to refresh\n"
    wheel = other_release(checkout, "two", {**PRISTINE, path: b"# new\n" + before})
    assert command.main([*refresh, wheel]) == 0
    moved = text.replace("@@ -8,2 +8,2 @@", "@@ -9,2 +9,2 @@").replace("@@ -10,2 +10,3 @@", "@@ -11,2 +11,3 @@")
    assert (checkout.directory / f"{name}.patch").read_text() == moved


def test_refresh_refuses_patches_that_are_not_in_order(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    swap(checkout.maker)
    checkout.rewrite()
    before = {path: path.read_bytes() for path in checkout.directory.glob("*.*")}
    assert command.main(["refresh", "--series", str(checkout.directory), "--wheel", str(checkout.wheel)]) == 2
    assert "not in the order of their numbers" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in checkout.directory.glob("*.*")} == before


def test_refresh_never_guesses_between_two_places(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    twice = b"# new\n" + PRISTINE["demo/worker.py"] + PRISTINE["demo/worker.py"]
    wheel = other_release(checkout, "two", {**PRISTINE, "demo/worker.py": twice})
    before = {path: path.read_bytes() for path in checkout.directory.iterdir() if path.is_file()}
    assert command.main(["refresh", "--series", str(checkout.directory), "--wheel", wheel]) == 2
    assert "0002-second: demo/worker.py, hunk 1: its lines are at lines 9, 39" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in checkout.directory.iterdir() if path.is_file()} == before


def test_new_turns_an_edit_into_a_patch(checkout: Checkout, env: Env, capsys: pytest.CaptureFixture[str]) -> None:
    env.run(checkout.maker)
    arguments = [
        "new",
        "my-edit",
        "--title",
        "Mend it",
        "--environment",
        str(env.root),
        "--series",
        str(checkout.directory),
    ]
    arguments += ["--wheel", str(checkout.wheel)]
    assert command.main(arguments) == 2
    assert "no file of demo" in capsys.readouterr().err
    edited = {"demo/engine.py": b"engine_15 = 'mine'", "demo/__init__.py": b"NEW = 1"}
    (env.site / "demo/engine.py").write_bytes(
        (env.read("demo/engine.py") or b"").replace(b"engine_15 = 15", b"engine_15 = 'mine'")
    )
    (env.site / "demo/__init__.py").write_bytes(b"NEW = 1")
    after = {path: env.read(path) for path in edited}
    assert command.main(arguments) == 0
    series = load.read_series(checkout.directory)
    patch = series.patches[-1]
    assert (patch.id, patch.title, sorted(patch.paths)) == ("0004-my-edit", "Mend it", sorted(edited))
    assert series.files["demo/__init__.py"] == sha256(b"")
    # What the new series makes is exactly what the maintainer has on disk, and its probes find the edit.
    for path in edited:
        (env.site / path).write_bytes(PRISTINE[path])
    done = run(Request(environment=env.root, series=[series]))
    assert failed(done) == []
    assert {path: env.read(path) for path in edited} == after
    capsys.readouterr()
    faults = " ".join(checkout.lint(capsys)[1])
    # Only what a person has to fill in is left; the edit itself, its lines and its probes are in order.
    assert "0004-my-edit: Fault is 'TODO'" in faults
    assert "0004-my-edit: its test TODO does not exist" in faults
    assert "probe" not in faults
    assert "hunk" not in faults


def test_new_refuses_an_environment_without_the_series(
    checkout: Checkout, env: Env, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(checkout.directory.iterdir())
    arguments = ["new", "my-edit", "--title", "Mend it", "--environment", str(env.root)]
    assert command.main([*arguments, "--series", str(checkout.directory), "--wheel", str(checkout.wheel)]) == 2
    assert "as its wheel delivered it, without the series" in capsys.readouterr().err
    assert sorted(checkout.directory.iterdir()) == before


def test_new_refuses_an_environment_of_another_version(
    checkout: Checkout, env: Env, capsys: pytest.CaptureFixture[str]
) -> None:
    (env.site / "demo-1.0.dist-info/METADATA").write_text("Name: demo\nVersion: 1.1\n\n")
    arguments = [
        "new",
        "x",
        "--environment",
        str(env.root),
        "--series",
        str(checkout.directory),
        "--wheel",
        str(checkout.wheel),
    ]
    assert command.main(arguments) == 2
    assert "has demo 1.1, the series is for 1.0" in capsys.readouterr().err


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

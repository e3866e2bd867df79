"""The maintainers' commands that write patches: refresh and new."""

from __future__ import annotations

import re

import pytest

from ansible.module_utils.aerie.distributions.installed import sha256
from ansible.module_utils.aerie.patching.engine import run
from ansible.module_utils.aerie.patching.request import Request
from tools import series as command
from tools.serieskit import load

from .checkouts import Checkout, other_release, swap
from .helpers import HEADER, PRISTINE, Env, body, failed, make_patch


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


@pytest.mark.parametrize(
    ("other", "before", "found"),
    [("low_3", "top_1", [14, 17]), ("top_3", "top_1", [3, 14]), ("low_3", "low_1", [13, 17])],
    ids=["by the next hunk", "by the hunk before", "by the one before, the next having moved"],
)
def test_refresh_takes_one_of_two_places_by_the_hunks_around_it(
    checkout: Checkout, other: str, before: str, found: list[int]
) -> None:
    """A line is put after the second of two equal "end"; another hunk is where its lines stand only once."""
    old = (body("top", 5) + b"end\n\n" + body("middle", 5) + b"end\n\n" + body("low", 5)).decode()
    new = "end\nextra = 1\n".join(old.rsplit("end\n", 1)).replace(f"{other} = 3\n", "changed = 3\n")
    text = make_patch("demo/worker.py", old.encode(), new.encode())
    checkout.maker.texts["0002-second"] = HEADER + text
    checkout.rewrite()
    moved = old.replace(f"{before} = 1\n", f"# new\n{before} = 1\n").encode()
    wheel = other_release(checkout, "two", {**PRISTINE, "demo/worker.py": moved})
    assert command.main(["refresh", "--series", str(checkout.directory), "--wheel", wheel]) == 0
    written = (checkout.directory / "0002-second.patch").read_text()
    assert [int(line) for line in re.findall(r"^@@ -(\d+)", written, re.MULTILINE)] == found


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
    assert "is not patched: run playbooks/patch.yml first" in capsys.readouterr().err
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

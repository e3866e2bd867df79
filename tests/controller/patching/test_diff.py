"""The strict applier against GNU patch, and against the ways in which GNU patch is not strict."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible.module_utils.aerie.patching.diff import ConflictError, DiffError, apply, parse, reverse

from .helpers import HEADER, make_patch

if TYPE_CHECKING:
    from pathlib import Path

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "  x = 1", "@@", "-- ", "+++ b"]), max_size=25)


def text_of(lines: list[str], final: bool, end: str = "\n") -> bytes:
    text = end.join(lines)
    return (text + end if lines and final else text).encode()


def gnu_diff(folder: Path, before: bytes, after: bytes, context: int) -> bytes:
    (folder / "old").write_bytes(before)
    (folder / "new").write_bytes(after)
    done = subprocess.run(
        ["diff", f"-U{context}", "--label", "a/f.py", "--label", "b/f.py", "old", "new"],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    return done.stdout


def gnu_patch(folder: Path, content: bytes, patch: bytes) -> bytes | None:
    """What GNU patch makes of it without fuzz; ``None`` where it fails or needs an offset."""
    (folder / "f.py").write_bytes(content)
    (folder / "p.patch").write_bytes(patch)
    command = ["patch", "-p1", "-F0", "--binary", "-f", "-N", "-o", "out", "-r", "rejected", "-i", "p.patch"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode or "offset" in done.stdout:
        return None
    return (folder / "out").read_bytes()


@pytest.mark.skipif(not shutil.which("patch") or not shutil.which("diff"), reason="needs GNU patch and diff as oracle")
@settings(max_examples=60, deadline=None)
@given(old=LINES, new=LINES, old_end=st.booleans(), new_end=st.booleans(), context=st.sampled_from([1, 1, 3]))
def test_agrees_with_gnu_patch(
    tmp_path_factory: pytest.TempPathFactory,
    old: list[str],
    new: list[str],
    old_end: bool,
    new_end: bool,
    context: int,
) -> None:
    folder = tmp_path_factory.mktemp("oracle")
    before, after = text_of(old, old_end), text_of(new, new_end)
    patch = gnu_diff(folder, before, after, context)
    if not patch or not before or not after:
        return  # no difference, or a file made or emptied, which is no edit
    parsed = parse(HEADER.encode() + patch).files[0]
    assert apply(before, parsed) == after == gnu_patch(folder, before, patch)
    assert apply(after, reverse(parsed)) == before


@settings(max_examples=200, deadline=None)
@given(old=LINES, new=LINES, damage=LINES, at=st.integers(0, 25))
def test_damaged_context_never_applies(old: list[str], new: list[str], damage: list[str], at: int) -> None:
    before, after = text_of(old, final=True), text_of(new, final=True)
    if before == after or not after or not before:
        return
    parsed = parse(make_patch("f.py", before, after).encode()).files[0]
    damaged = text_of(old[:at] + damage + old[at + len(damage) :], final=True)
    try:
        result = apply(damaged, parsed)
    except ConflictError:
        return
    lines = damaged.split(b"\n")
    for hunk in parsed.hunks:  # it applied: then every old line stood at its number
        for number, want in enumerate(hunk.old):
            assert lines[hunk.index + number] + b"\n" == want
    assert apply(result, reverse(parsed)) == damaged


def test_a_look_alike_block_elsewhere_is_a_conflict_that_names_the_offset() -> None:
    block = b"def f():\n    return 1\n\n"
    before = b"x = 1\n" + block + b"y = 2\n" * 5 + block
    patch = parse(make_patch("f.py", before, before.replace(b"return 1", b"return 2", 1)).encode()).files[0]
    moved = b"x = 1\ny = 0\n" + block + b"y = 2\n" * 5 + b"# end\n"
    with pytest.raises(ConflictError, match=r"the lines are at line 3 instead \(offset \+1\)"):
        apply(moved, patch)
    twice = b"# new\n" + before
    with pytest.raises(ConflictError, match="not there, but at lines 3, 11"):
        apply(twice, patch)


def test_an_edit_that_is_there_already_is_said_to_be() -> None:
    before = b"a\nb\nc\nd\ne\nf\ng\nh\n"
    after = before.replace(b"b\n", b"B\n").replace(b"g\n", b"G\n")
    patch = parse(make_patch("f.py", before, after).encode()).files[0]
    with pytest.raises(ConflictError, match=r"hunk 1 .*the edit is there already, at line 1"):
        apply(before.replace(b"b\n", b"B\n"), patch)


def test_line_ends_are_adapted_only_when_uniform() -> None:
    before, after = b"a\nb\nc\n", b"a\nB\nc\n"
    patch = parse(make_patch("f.py", before, after).encode()).files[0]
    crlf = parse(make_patch("f.py", before, after).replace("\n", "\r\n").encode()).files[0]
    assert apply(before.replace(b"\n", b"\r\n"), patch) == after.replace(b"\n", b"\r\n")
    assert apply(before, crlf) == after
    with pytest.raises(ConflictError):
        apply(b"a\r\nb\nc\n", patch)


GOOD = "--- a/f.py\n+++ b/f.py\n@@ -1,2 +1,2 @@\n a\n-b\n+B\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "touches no file"),
        (GOOD.replace("+++ b/f.py\n", ""), "without"),
        (GOOD.replace("-1,2", "-1,3"), "ends before"),
        (GOOD.replace("-1,2 +1,2", "-1,1 +1,1"), "changes nothing"),
        (GOOD.replace("@@ -1,2 +1,2 @@", "@@ -1,2 +1,2"), "malformed hunk"),
        (GOOD.replace("-1,2 +1,2", "-1,2 +1,1"), "outside a hunk|other line counts"),
        (GOOD.replace("-b\n+B\n", " b\n"), "changes nothing"),
        (GOOD + GOOD, "two sections"),
        (GOOD.replace("b/f.py", "b/g.py"), "names of"),
        (GOOD.replace("a/f.py", "/dev/null"), "added as modules"),
        (GOOD.replace("b/f.py", "/dev/null"), "never deleted"),
        (GOOD.replace("a/f.py", "a//etc/passwd").replace("b/f.py", "b//etc/passwd"), "plain path"),
        (GOOD.replace("a/f.py", "a/../f.py").replace("b/f.py", "b/../f.py"), "plain path"),
        (GOOD.replace("a/f.py", "f.py"), "prefix"),
        ("rename from a\nrename to b\n" + GOOD, "only plain edits"),
        ("old mode 100644\nnew mode 100755\n" + GOOD, "only plain edits"),
        (GOOD + "+stray\n", "other line counts|outside a hunk"),
        ("--- a/f.py\n+++ b/f.py\n", "no hunk"),
    ],
)
def test_malformed_patches_are_refused(text: str, why: str) -> None:
    with pytest.raises(DiffError, match=why):
        parse(text.encode())


def test_git_decoration_and_signature_are_no_content() -> None:
    text = "From 0000 Mon\nSubject: x\n\ndiff --git a/f.py b/f.py\nindex 1..2 100644\n" + GOOD + "-- \n2.39.0\n"
    parsed = parse(text.encode())
    assert apply(b"a\nb\n", parsed.files[0]) == b"a\nB\n"
    assert parsed.header.startswith("From 0000")


def test_overlapping_hunks_conflict() -> None:
    text = "--- a/f.py\n+++ b/f.py\n@@ -1,2 +1,2 @@\n a\n-b\n+B\n@@ -2,2 +2,2 @@\n-b\n+C\n c\n"
    with pytest.raises(ConflictError, match="overlaps"):
        apply(b"a\nb\nc\n", parse(text.encode()).files[0])

"""The damage itself: what is taken back is exactly what was put in, and a rebased series still applies."""

from __future__ import annotations

import difflib
import hashlib
from pathlib import Path
from typing import Any

import pytest

from ansible.module_utils.aerie.patching import diff
from ansible.module_utils.aerie.patching.series import Series, from_raw
from tools.mutationkit import mutating

PATH = "pkg/code.py"
LINES = [f"line {number}\n" for number in range(1, 21)]
PRISTINE = "".join(LINES).encode()
HEADER = "Description: x\nFaults: 1\nOrigin: other\nForwarded: no\nLicense: Apache-2.0\n"
FIRST = f"{HEADER}--- a/{PATH}\n+++ b/{PATH}\n@@ -2,3 +2,5 @@\n line 2\n-line 3\n+line three\n+new a\n+new b\n line 4\n"
SECOND = (
    f"{HEADER}--- a/{PATH}\n+++ b/{PATH}\n@@ -6,2 +6,3 @@\n line 4\n+between\n line 5\n"
    "@@ -13,3 +14,2 @@\n line 11\n-line 12\n line 13\n"
)
BUILDS_ON = f"{HEADER}--- a/{PATH}\n+++ b/{PATH}\n@@ -3,3 +3,3 @@\n line three\n-new a\n+new A\n new b\n"


def raw(**texts: str) -> dict[str, Any]:
    patches = [
        {
            "id": name.replace("_", "-").removeprefix("p"), "title": "t", "faults": [1], "breaks": "b",
            "since": "vllm 0.12", "upstream": "none", "drop_when": "x >= 1", "test": "t::t",
            "probes": {"grep": [{"file": PATH, "pattern": "line"}]},
        }
        for name in texts
    ]  # fmt: skip
    files = {PATH: hashlib.sha256(PRISTINE).hexdigest()}
    document = {"distribution": "pkg", "version": "1.0", "files": files, "patches": patches}
    renamed = {name.replace("_", "-").removeprefix("p"): text for name, text in texts.items()}
    return {"name": "pkg-1.0", "document": document, "texts": renamed, "modules": {}}


def make_diff(before: str, after: str) -> str:
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(difflib.unified_diff(old, new, f"a/{PATH}", f"b/{PATH}", n=1))


def final(series: Series) -> bytes:
    return mutating.states(series, {PATH: PRISTINE})[-1][PATH]


def test_a_patch_taken_back_leaves_exactly_the_others() -> None:
    both = from_raw(raw(p0001_first=FIRST, p0002_second=SECOND))
    only_first = final(from_raw(raw(p0001_first=FIRST)))
    found = mutating.without_patch(final(both), both.patches[1].parsed.files[0])
    assert found == only_first
    rest = mutating.without_patch(final(both), both.patches[0].parsed.files[0])
    assert b"line three" not in rest
    assert b"between" in rest
    assert mutating.without_patch(rest, both.patches[1].parsed.files[0]) == PRISTINE


def test_one_hunk_taken_back_leaves_the_other_hunk() -> None:
    series = from_raw(raw(p0001_first=FIRST, p0002_second=SECOND))
    hunk = series.patches[1].parsed.files[0].hunks[1]
    found = mutating.take_back(final(series), hunk)
    assert b"line 12\n" in found
    assert b"between\n" in found


def test_a_hunk_that_stands_in_two_places_is_taken_back_where_its_neighbour_moved_to() -> None:
    before = "".join([*LINES[:5], "end\n", "\n", *LINES[5:], "end\n", "gone\n", "\n"])
    after = before.replace("line 12\n", "line twelve\n").replace("gone\n", "")
    both = diff.parse(f"{HEADER}{make_diff(before, after)}".encode())
    moved = "".join(f"new {number}\n" for number in range(14)) + after
    found = mutating.without_patch(moved.encode(), both.files[0]).decode()
    assert found == "".join(f"new {number}\n" for number in range(14)) + before
    assert diff.recover(moved.encode(), list(both.files)).decode() == found


def test_a_hunk_that_is_not_there_cannot_be_taken_back() -> None:
    series = from_raw(raw(p0001_first=FIRST))
    with pytest.raises(mutating.CannotMutateError):
        mutating.take_back(PRISTINE, series.patches[0].parsed.files[0].hunks[0])


def test_a_dropped_patch_leaves_a_series_that_applies_strictly() -> None:
    whole = raw(p0001_first=FIRST, p0002_second=SECOND)
    rebased = from_raw(mutating.drop(whole, from_raw(whole), {PATH: PRISTINE}, "0001-first"))
    assert [patch.id for patch in rebased.patches] == ["0002-second"]
    text = final(rebased)
    assert b"between" in text
    assert b"three" not in text
    assert "0001-first" in whole["texts"], "the given series stays whole"


def test_a_patch_that_others_build_on_cannot_be_dropped_alone() -> None:
    whole = raw(p0001_first=FIRST, p0002_builds=BUILDS_ON)
    with pytest.raises(mutating.CannotMutateError):
        mutating.drop(whole, from_raw(whole), {PATH: PRISTINE}, "0001-first")


def test_a_replaced_file_leaves_its_hard_link_alone(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env/file").write_text("shared")
    mutating.link_copy(tmp_path / "env", tmp_path / "copy")
    assert (tmp_path / "copy/file").stat().st_ino == (tmp_path / "env/file").stat().st_ino
    mutating.replace(tmp_path / "copy/file", b"damaged")
    assert (tmp_path / "env/file").read_text() == "shared"
    mutating.replace(tmp_path / "copy/file", None)
    assert not (tmp_path / "copy/file").exists()


@pytest.mark.parametrize(
    ("contract", "gone"),
    [
        ({"defines": "vllm.engine.Scheduler.schedule"}, "def schedule("),
        ({"defines": "vllm.engine.Scheduler.schedule", "parameters": ["step"]}, "(self, step)"),
        ({"source": "vllm.engine", "pattern": r"return \d+", "says": "x"}, "return 1"),
        ({"call": "vllm.engine.Scheduler", "in": "ours.py", "passes": {"size": 16}}, "size=16"),
        ({"call": "vllm.engine.Scheduler", "in": "ours.py", "passes": {"size": "any"}}, " size=16"),
    ],
)
def test_the_smallest_damage_breaks_what_the_contract_says(tmp_path: Path, contract: dict[str, Any], gone: str) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    (site / "vllm").mkdir(parents=True)
    (site / "vllm/__init__.py").write_text("")
    (site / "vllm/engine.py").write_text("class Scheduler:\n    def schedule(self, step):\n        return 1\n")
    (site / "ours.py").write_text("other(size=1)\nScheduler(1, size=16)\n")
    path, content, words = mutating.damage_contract(tmp_path, contract)
    assert gone in path.read_text()
    assert gone.encode() not in content
    assert b"other(size=1)" in content or path.name == "engine.py"
    assert words


def test_the_diff_parser_reads_what_a_rebase_writes() -> None:
    whole = raw(p0001_first=FIRST, p0002_second=SECOND)
    rebased = mutating.drop(whole, from_raw(whole), {PATH: PRISTINE}, "0001-first")
    parsed = diff.parse(rebased["texts"]["0002-second"].encode())
    assert parsed.header.startswith("Description: x")


def test_damaged_files_are_put_back_whatever_happens(tmp_path: Path) -> None:
    path, shared = tmp_path / "code.py", tmp_path / "shared.py"
    path.write_bytes(b"one\n")
    shared.hardlink_to(path)

    def interrupted() -> None:
        with mutating.replaced({path: b"two\n"}):
            assert (path.read_bytes(), shared.read_bytes()) == (b"two\n", b"one\n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"one\n"

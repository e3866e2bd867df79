"""The declared damages: each fits what is there now, and a table that rots is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from aerie_paths import CHECKOUT

from tools.mutationkit import page, properties
from tools.mutationkit.groups import NOT_CAUGHT, UNDECLARED, Row
from tools.mutationkit.mutating import CannotMutateError
from tools.mutationkit.properties import Edit, damaged, damages

SERIES = CHECKOUT / "files/patches/speculators-0.3.0"
MODULES = {
    module["target"]: SERIES / module["source"]
    for module in yaml.safe_load((SERIES / "series.yml").read_text(encoding="utf-8"))["modules"]
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "code.py").write_text("one = 1\ntwo = 2\ntwo = 2\n")
    return tmp_path


def test_edits_of_one_file_are_made_together(site: Path) -> None:
    (content,) = damaged(site, (Edit("code.py", "one = 1", "one = 3"), Edit("code.py", "one = 3\n", ""))).values()
    assert content == b"two = 2\ntwo = 2\n"
    assert (site / "code.py").read_text().startswith("one = 1")


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (Edit("code.py", "two = 2", ""), "code.py has 'two = 2' 2 times, wanted once"),
        (Edit("code.py", "three", ""), "code.py has 'three' 0 times, wanted once"),
        (Edit("gone.py", "x", ""), "gone.py does not exist"),
    ],
)
def test_a_text_that_is_not_there_exactly_once_is_an_error(site: Path, edit: Edit, says: str) -> None:
    with pytest.raises(CannotMutateError) as caught:
        damaged(site, (edit,))
    assert str(caught.value) == says


@pytest.mark.parametrize("damage", damages(), ids=lambda damage: damage.damage)
def test_a_declared_damage_fits_the_modules(damage: properties.Damage, tmp_path: Path) -> None:
    """What is edited in files of our own is there, once; the files of others are in tests/stack."""
    for target, source in MODULES.items():
        (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / target).write_bytes(source.read_bytes())
    for path, content in damaged(tmp_path, tuple(edit for edit in damage.edits if edit.file in MODULES)).items():
        compile(content, path, "exec")
        assert content != path.read_bytes()


def test_a_case_that_nobody_knows_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "properties.yml"
    file.write_text("- {breaks: x, damage: y, cases: [nothing], edits: []}\n")
    monkeypatch.setattr(properties, "FILE", file)
    with pytest.raises(ValueError, match="cases are of one, mixed"):
        damages()


def test_every_way_to_see_an_undeclared_patch_is_of_a_patch() -> None:
    ways = yaml.safe_load(UNDECLARED.read_text(encoding="utf-8"))
    files = {path.stem for path in (CHECKOUT / "files/patches").glob("*/*.patch")}
    assert set(ways) <= files


def row(group: str, rung: str, what: str = "what", message: str = "m | n") -> Row:
    return Row(group, what, "1", "how", rung, message, 1.0)


def test_a_group_made_anew_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    output = tmp_path / "page.md"
    page.write(output, {"hunks": [row("hunks", "audit")], "patches": [row("patches", "audit")]}, "s")
    both = output.read_text()
    assert both.index("## Every patch\n") < both.index("## Every hunk")
    page.write(output, {"properties": [row("properties", "truth"), row("properties", NOT_CAUGHT, "other")]}, "s")
    assert output.read_text().startswith(both)
    assert "1 of 2 caught." in output.read_text()
    page.write(output, {"hunks": [row("hunks", "imports")]}, "s")
    assert output.read_text().count("| what | 1 | how | imports | m \\| n |") == 1
    assert output.read_text().count("## ") == 3


def test_a_row_made_anew_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    output = tmp_path / "page.md"
    page.write(output, {"hunks": [row("hunks", NOT_CAUGHT, name) for name in ("a|b", "c")]}, "s")
    page.write(output, {"hunks": [row("hunks", "truth", name) for name in ("a|b", "d")]}, "s", only=True)
    lines = [text for text in output.read_text().splitlines() if text.startswith("| ")][1:]
    assert [page.cells(text)[:4:3] for text in lines] == [("a\\|b", "truth"), ("c", NOT_CAUGHT), ("d", "truth")]
    assert "2 of 3 caught." in output.read_text()


def test_the_page_of_the_checkout_has_every_declared_damage_and_misses_none() -> None:
    text = (CHECKOUT / "docs/mutations.md").read_text(encoding="utf-8")
    assert NOT_CAUGHT not in text
    for damage in damages():
        assert f"| {damage.breaks} |  | {damage.damage} | truth |" in text
    for title in page.TITLES.values():
        assert f"## {title}\n" in text

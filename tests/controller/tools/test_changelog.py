"""The changelog: fragments are checked, released once, and the page is what changelogs/ says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from tools import changelog

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "changelogs/fragments").mkdir(parents=True)
    (tmp_path / "VERSION").write_text("0.2.0\n")
    first = {"release_date": "2026-01-02", "changes": {"features": ["The first thing."]}}
    (tmp_path / "changelogs/changelog.yaml").write_text(yaml.safe_dump({"releases": {"0.1.0": first, "0.2.0": {
        "release_date": "2026-02-03", "summary": "More.", "changes": {"bugfixes": ["A fix."]}}}}))  # fmt: skip
    return tmp_path


def add(checkout: Path, name: str, text: str) -> Path:
    path = checkout / "changelogs/fragments" / name
    path.write_text(text)
    return path


def test_the_checkout_itself_is_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert changelog.main(["--check"]) == 0, capsys.readouterr().err


def test_newest_version_first_and_unreleased_before_it(checkout: Path) -> None:
    add(checkout, "new.yml", "---\nfeatures: [Not yet released.]\n")
    assert changelog.main([], checkout) == 0
    page = (checkout / "CHANGELOG.md").read_text()
    order = [
        "## Unreleased",
        "- Not yet released.",
        "## 0.2.0 (2026-02-03)",
        "More.",
        "- A fix.",
        "## 0.1.0 (2026-01-02)",
    ]
    places = [page.index(text) for text in order]
    assert places == sorted(places)
    assert changelog.main(["--check"], checkout) == 0


def test_ten_comes_after_nine() -> None:
    release = {"release_date": "d", "changes": {"features": ["x"]}}
    page = changelog.page({"0.9.0": release, "0.10.0": release}, {})
    assert page.index("0.10.0") < page.index("0.9.0")


def test_a_release_takes_the_fragments_and_a_second_one_changes_nothing(checkout: Path) -> None:
    fragment = add(checkout, "new.yml", "---\nfeatures: [New.]\nbugfixes: [A fix., Another fix.]\n")
    assert changelog.main(["--release", "--date", "2026-03-04"], checkout) == 0
    assert not fragment.exists()
    release = yaml.safe_load((checkout / "changelogs/changelog.yaml").read_text())["releases"]["0.2.0"]
    assert release == {
        "release_date": "2026-03-04",
        "summary": "More.",
        "changes": {"features": ["New."], "bugfixes": ["A fix.", "Another fix."]},
    }
    before = (checkout / "CHANGELOG.md").read_text()
    assert changelog.main(["--release", "--date", "2026-03-04"], checkout) == 0
    assert (checkout / "CHANGELOG.md").read_text() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("---\nfeature: [Misspelt.]\n", "unknown section 'feature'"),
        ("---\nfeatures: A sentence.\n", "not a list of sentences"),
        ("---\nfeatures:\n  - a colon: makes a mapping\n", "not a list of sentences"),
        ("---\nfeatures: []\n", "not a list of sentences"),
        ("--- [", "no YAML"),
        ("", "holds NoneType"),
    ],
)
def test_a_broken_fragment_is_named_and_nothing_is_written(
    checkout: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    fragment = add(checkout, "broken.yml", text)
    for arguments in (["--check"], ["--release"], []):
        assert changelog.main(arguments, checkout) == 1
        assert f"broken.yml: {message}" in capsys.readouterr().err.replace("'features' is ", "")
    assert fragment.exists()
    assert not (checkout / "CHANGELOG.md").exists()


def test_a_stale_page_and_a_version_without_an_entry_are_refused(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changelog.main([], checkout)
    add(checkout, "late.yml", "---\nfeatures: [Late.]\n")
    (checkout / "VERSION").write_text("0.3.0\n")
    assert changelog.main(["--check"], checkout) == 1
    messages = capsys.readouterr().err
    assert "VERSION is 0.3.0, which has no entry" in messages
    assert "CHANGELOG.md is not what changelogs/ says" in messages

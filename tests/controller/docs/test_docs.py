"""The pages: every link leads somewhere, every page is in the index, and no old name is left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# What nobody edits by hand: recorded runs, and pages made from data that keep their own words.
RECORDED = {"docs/mutations.md", "docs/benchmarks/h200/README.md"}
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("roles/*/README.md"))
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# Names that stages, roles and modules no longer have, and words that a reader could take for something else.
OLD_NAMES = {
    "a playbook": r"end_extraction",
    "the command": r"train-smoke",
    "the role": r"gpu_host",
    "the host program": r"\bpayload\b",
    "the stage ready": r"\breadiness\b",
    "a stage": r"\brungs?\b",
    "a tag": r"--tags \S*tensors",
}


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    broken = []
    for link in LINK.findall(FENCE.sub("", text)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", [page for page in PAGES if page not in RECORDED and page != "CHANGELOG.md"])
def test_old_names_are_gone(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = {
        f"{what}: {match[0]} in line {text.count(chr(10), 0, match.start()) + 1}"
        for what, pattern in OLD_NAMES.items()
        if what != "a stage" or not page.startswith("roles/")
        for match in re.finditer(pattern, text)
    }
    assert not found


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    linked = {(ROOT / "docs" / link.partition("#")[0]).resolve() for link in LINK.findall(index)}
    pages = {(ROOT / page).resolve() for page in PAGES} - {ROOT / "docs/README.md", ROOT / "README.md"}
    assert not pages - linked


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


def test_paths_that_pages_name_are_there() -> None:
    """What a page or a command on it names below a folder of the checkout exists, or is a pattern of what does."""
    folders = "bench|host|library|module_utils|playbooks|schema|tests|tools"
    named = re.compile(rf"(?<![\w./<>-])(?:{folders})/[\w*-][\w./*-]*")
    missing = [
        f"{page}: {path}"
        for page in PAGES
        if page not in RECORDED and page != "CHANGELOG.md"
        for path in named.findall((ROOT / page).read_text(encoding="utf-8"))
        if not list(ROOT.glob(path.rstrip("/.")))
    ]
    assert not missing

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make CHANGELOG.md from changelogs/changelog.yaml and the fragments of changes that are not released yet.

Without options the page is rewritten; with --check nothing is written and every fault is listed. --release moves the
fragments into changelog.yaml under the version that the file VERSION names. Files have the form of antsibull-changelog.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
# The sections of a fragment, in the order of the page.
SECTIONS = {
    "breaking_changes": "Breaking changes",
    "features": "Features",
    "bugfixes": "Bug fixes",
    "known_issues": "Known issues",
}
UNRELEASED = "Unreleased"
HEAD = (
    "<!-- Made by tools/changelog.py from changelogs/: edit there. -->\n\n# Changelog\n\n"
    "Versions follow [Semantic Versioning](https://semver.org). The file `VERSION` names the current one.\n"
)

Changes = dict[str, list[str]]


class Dumper(yaml.SafeDumper):
    """Indents lists below their key, as yamllint wants them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - what is overridden
        """Never without an indent."""
        super().increase_indent(flow, False)


def dump(releases: dict[str, dict[str, Any]]) -> str:
    """The text of changelog.yaml."""
    content = yaml.dump({"releases": releases}, Dumper=Dumper, sort_keys=False, width=110, allow_unicode=True)
    return f"---\n{content}"


def problems_of(name: str, content: Any) -> list[str]:
    """What is wrong with the content of a fragment, one sentence for each fault."""
    if not isinstance(content, dict) or not content:
        return [f"{name}: holds {type(content).__name__}, wanted sections with lists of sentences"]
    problems = [
        f"{name}: unknown section {section!r}, known are {', '.join(SECTIONS)}"
        for section in content
        if section not in SECTIONS
    ]
    for section, entries in content.items():
        if not isinstance(entries, list) or not entries or not all(isinstance(entry, str) for entry in entries):
            problems.append(f"{name}: {section!r} is not a list of sentences (a colon needs quotes)")
    return problems


def read_fragments(folder: Path) -> tuple[dict[Path, Changes], list[str]]:
    """The fragments in a folder by path, and what is wrong with those that cannot be used."""
    fragments: dict[Path, Changes] = {}
    problems: list[str] = []
    for path in sorted(folder.glob("*.y*ml")):
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            problems.append(f"{path.name}: no YAML: {str(error).splitlines()[0]}")
            continue
        wrong = problems_of(path.name, content)
        problems += wrong
        if not wrong:
            fragments[path] = content
    return fragments, problems


def merged(*parts: Changes) -> Changes:
    """All entries of several changes by section, in order; the same entry once."""
    result: Changes = {}
    for section in SECTIONS:
        entries = [entry for part in parts for entry in part.get(section, [])]
        if entries:
            result[section] = list(dict.fromkeys(entries))
    return result


def section_lines(title: str, changes: Changes, summary: str = "") -> str:
    """One version of the page."""
    text = f"\n## {title}\n"
    if summary:
        text += f"\n{summary.strip()}\n"
    for section, entries in merged(changes).items():
        text += f"\n### {SECTIONS[section]}\n\n" + "".join(f"- {' '.join(entry.split())}\n" for entry in entries)
    return text


def version_key(version: str) -> tuple[int, ...]:
    """A version of numbers and dots, for comparing. Raises `ValueError` for any other."""
    return tuple(int(part) for part in version.split("."))


def page(releases: dict[str, dict[str, Any]], fragments: dict[Path, Changes]) -> str:
    """The page: what is not released, then the versions, newest first."""
    text = HEAD
    if fragments:
        text += section_lines(UNRELEASED, merged(*fragments.values()))
    for version in sorted(releases, key=version_key, reverse=True):
        release = releases[version]
        title = f"{version} ({release['release_date']})"
        text += section_lines(title, release["changes"], release.get("summary", ""))
    return text


def release(
    releases: dict[str, dict[str, Any]], fragments: dict[Path, Changes], version: str, date: str
) -> dict[str, dict[str, Any]]:
    """The releases with the fragments under ``version``. A version that is there keeps what it has, first."""
    before = releases.get(version, {"changes": {}})
    changes = merged(before["changes"], *fragments.values())
    return {**releases, version: {**before, "release_date": date, "changes": changes}}


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    """Exit 0 when the page is written or as it should be, 1 when something is wrong, 2 for a wrong request."""
    parser = argparse.ArgumentParser(description=__doc__)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="write nothing, list what is wrong")
    action.add_argument("--release", action="store_true", help="release the fragments under the version in VERSION")
    parser.add_argument("--date", default=dt.datetime.now(dt.timezone.utc).date().isoformat(), help="of the release")
    arguments = parser.parse_args(argv)
    store, target = root / "changelogs" / "changelog.yaml", root / "CHANGELOG.md"
    fragments, problems = read_fragments(root / "changelogs" / "fragments")
    releases: dict[str, dict[str, Any]] = yaml.safe_load(store.read_text(encoding="utf-8"))["releases"] or {}
    version = (root / "VERSION").read_text(encoding="utf-8").strip()
    if arguments.release and not problems:
        releases = release(releases, fragments, version, arguments.date)
        store.write_text(dump(releases), encoding="utf-8")
        for path in fragments:
            path.unlink()
        fragments = {}
    if version not in releases:
        problems.append(f"VERSION is {version}, which has no entry in {store.name}: run tools/changelog.py --release")
    wanted = page(releases, fragments)
    if arguments.check:
        found = target.read_text(encoding="utf-8") if target.is_file() else ""
        if found != wanted:
            problems.append(f"{target.name} is not what changelogs/ says: run tools/changelog.py")
    elif not problems:
        target.write_text(wanted, encoding="utf-8")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Work on patch series: lint, faults, compat, new, refresh. See docs/patches.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import aerie_paths  # noqa: F401  (makes the following importable)

from tools.serieskit import ROOT, docs, edit, load
from tools.serieskit.lint import lint, lint_schema, lint_stack

SPECULATORS = ["0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "0.9.0"]
DEFAULT = ROOT / "files" / "patches" / "speculators-0.3.0"


def run_lint(arguments: argparse.Namespace) -> int:
    """Print every fault; a release that cannot be fetched is said, and fails only where it is required."""
    directories = [Path(path) for path in arguments.series] or load.all_series()
    if not directories:
        raise load.CannotRunError("there is no series in files/patches")
    faults = []
    for directory in directories:
        faults += _lint_directory(directory, arguments)
    if not arguments.series and not faults:
        faults += _lint_checkout()
    print("\n".join(faults) if faults else f"{len(directories)} series, no fault")
    return 1 if faults else 0


def _lint_directory(directory: Path, arguments: argparse.Namespace) -> list[str]:
    without = lint(directory, None)
    if lint_schema(directory):
        return without
    series = load.read_series(directory)
    try:
        with load.release(series.distribution, arguments.wheel or series.version) as release:
            return lint(directory, release)
    except load.CannotRunError as error:
        text = f"{directory.name}: not held against the release: {error}"
        if arguments.require_release:
            return [*without, text]
        print(f"warning: {text}", file=sys.stderr)
        return without


def _lint_checkout() -> list[str]:
    """What holds for all series together: the stacks' faults are mended, the generated page is current."""
    known = {path.name: load.read_series(path) for path in load.all_series()}
    faults = []
    for path in sorted((ROOT / "stacks").glob("*.yml")):
        faults += lint_stack(path, yaml.safe_load(path.read_text(encoding="utf-8")), known)
    page = ROOT / "docs" / "faults.md"
    if not page.is_file() or page.read_text(encoding="utf-8") != docs.faults_page(list(known.values())):
        faults.append("docs/faults.md is not what the series say: run tools/series.py faults --write docs/faults.md")
    return faults


def _emit(text: str, write: str | None) -> int:
    if write:
        Path(write).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


def run_faults(arguments: argparse.Namespace) -> int:
    """Print or write the fault catalogue."""
    return _emit(docs.faults_page([load.read_series(path) for path in load.all_series()]), arguments.write)


def run_compat(arguments: argparse.Namespace) -> int:
    """Say how each patch fares with the given releases; 1 when one of them needs work."""
    series = load.read_series(Path(arguments.series))
    fares = {}
    for wanted in arguments.releases or SPECULATORS:
        with load.release(series.distribution, wanted) as release:
            fares[Path(wanted).name] = docs.fare(series, release)
    if arguments.write:
        return _emit(docs.compat_page(series, fares), arguments.write)
    for wanted, outcomes in fares.items():
        for outcome in outcomes:
            print(
                f"{wanted}  {outcome.patch.id}: {docs.verdict(outcome)}" + (f": {outcome.note}" if outcome.note else "")
            )
    verdicts = {docs.verdict(outcome) for outcomes in fares.values() for outcome in outcomes}
    return 0 if verdicts <= {"applies", "obsolete"} else 1


def run_new(arguments: argparse.Namespace) -> int:
    """Turn edits in an environment into a patch."""
    directory = Path(arguments.series)
    series = load.read_series(directory)
    root = edit.environment(Path(arguments.environment))
    with load.release(series.distribution, arguments.wheel or series.version) as release:
        files = edit.new_patch(
            directory,
            root,
            arguments.slug,
            arguments.title or arguments.slug.replace("-", " "),
            release,
            arguments.files,
        )
    print(f"wrote a patch of {', '.join(files)}; now fill in every TODO of the header and of series.yml, then lint")
    return 0


def run_refresh(arguments: argparse.Namespace) -> int:
    """Rewrite line numbers and digests."""
    directory = Path(arguments.series)
    raw = load.read_raw(directory)
    wanted = arguments.wheel or raw["document"]["version"]
    with load.release(raw["document"]["distribution"], wanted) as release:
        changed = edit.refresh(directory, release)
    print(f"rewrote {', '.join(changed)}" if changed else "nothing to refresh")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(description=__doc__)
    commands = top.add_subparsers(required=True, metavar="command")
    command = commands.add_parser("lint", help="judge series; all of the checkout when none is named")
    command.add_argument("series", nargs="*", help="series directories")
    command.add_argument("--wheel", help="the released wheel, instead of fetching it")
    command.add_argument("--require-release", action="store_true", help="fail when the release cannot be fetched")
    command.set_defaults(run=run_lint)
    command = commands.add_parser("faults", help="the fault catalogue as a page")
    command.add_argument("--write", metavar="FILE")
    command.set_defaults(run=run_faults)
    command = commands.add_parser("compat", help="how the patches fare with other releases; installs nothing")
    command.add_argument("releases", nargs="*", help="wheel files or versions")
    command.add_argument("--series", default=str(DEFAULT))
    command.add_argument("--write", metavar="FILE")
    command.set_defaults(run=run_compat)
    command = commands.add_parser("new", help="turn edited files of an environment into a patch")
    command.add_argument("slug", help="the name after the number: lower case, with hyphens")
    command.add_argument("--environment", required=True)
    command.add_argument("--series", default=str(DEFAULT))
    command.add_argument("--title")
    command.add_argument("--wheel", help="the released wheel, instead of fetching it")
    command.add_argument(
        "--file", dest="files", action="append", default=[], help="only this file (relative to site-packages)"
    )
    command.set_defaults(run=run_new)
    command = commands.add_parser("refresh", help="rewrite line numbers and digests after an edit of the series")
    command.add_argument("--series", default=str(DEFAULT))
    command.add_argument("--wheel", help="the released wheel, instead of fetching it; or another version")
    command.set_defaults(run=run_refresh)
    return top


def main(words: list[str]) -> int:
    """Entry point: 0 in order, 1 faults found, 2 could not run."""
    arguments = parser().parse_args(words)
    try:
        return int(arguments.run(arguments))
    except load.REFUSALS as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The pages that are made from the series: the fault catalogue, and how the patches fare with other releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible.module_utils.aerie.patching import fold

if TYPE_CHECKING:
    from ansible.module_utils.aerie.patching.series import Series, SeriesPatch
    from tools.serieskit.load import Release

NOTICE = "<!-- Made by tools/series.py from files/patches/*/series.yml: edit there. -->\n"
SYMBOLS = {fold.FITS: "applies", fold.OBSOLETE: "obsolete", fold.CONFLICTS: "conflicts", fold.MISSING: "missing target"}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _upstream(patch: SeriesPatch) -> str:
    return f"<{patch.upstream}>" if patch.upstream.startswith("http") else patch.upstream


def faults_page(all_series: list[Series]) -> str:
    """``docs/faults.md``: from the error that somebody sees to the patch that mends it."""
    page = NOTICE + "\n# Fault catalogue\n\n"
    page += "Find the error that you see, then the patch that mends it.\n"
    page += "A *silent* fault raises nothing: the data are wrong.\n"
    for series in all_series:
        page += f"\n## {series.distribution} {series.version}\n\n"
        page += "| what you see | fault | patch | since | until |\n|---|---|---|---|---|\n"
        for patch in series.patches:
            numbers = ", ".join(str(number) for number in patch.faults) or "-"
            seen = patch.breaks if patch.breaks.startswith("silent") else f"`{patch.breaks}`"
            link = f"[{patch.id}](#{patch.id})"
            page += f"| {_cell(seen)} | {numbers} | {link} | {_cell(patch.since)} | {_cell(patch.drop_when)} |\n"
        for patch in series.patches:
            page += _fault_entry(patch)
    return page


def _fault_entry(patch: SeriesPatch) -> str:
    entry = f"\n### {patch.id}\n\n{patch.title}.\n\n"
    entry += f"- without it: {patch.breaks if patch.breaks.startswith('silent') else f'`{patch.breaks}`'}\n"
    entry += f"- since: {patch.since}; can be dropped when: `{patch.drop_when}`\n"
    entry += f"- upstream: {_upstream(patch)}\n"
    entry += f"- edits: {', '.join(f'`{path}`' for path in patch.paths)}\n"
    entry += f"- proven by: `{patch.test}`\n"
    if patch.keep_when_obsolete:
        entry += f"- stays although upstream has it: {patch.keep_when_obsolete}\n"
    return entry


def fare(series: Series, release: Release) -> list[fold.Outcome]:
    """The outcome of each patch on another release, in order, each applied after those before it."""
    paths = sorted({path for patch in series.patches for path in patch.paths} | set(series.files))
    return fold.fold(series.patches, release.pristine(paths))[1]


def verdict(outcome: fold.Outcome) -> str:
    """The outcome in a word or two. A patch whose lines only moved needs a refresh."""
    moved = outcome.state == fold.CONFLICTS and "refresh the series" in outcome.note
    return "moved" if moved else SYMBOLS[outcome.state]


def compat_page(series: Series, fares: dict[str, list[fold.Outcome]]) -> str:
    """``docs/compat.md``: one column for each release."""
    page = NOTICE + f"\n# The series {series.name} and other releases of {series.distribution}\n\n"
    page += "Made by `tools/series.py compat --write docs/compat.md`; nothing is installed for it.\n\n"
    page += "- *applies*: strictly, at its lines\n"
    page += "- *moved*: the lines are there at other numbers; `tools/series.py refresh` mends it\n"
    page += "- *obsolete*: does not fit, and every grep probe holds without it: upstream has the edit\n"
    page += "- *conflicts*: the lines that it needs are different\n- *missing target*: the release has no such file\n\n"
    page += "Each patch is tried on what the patches before it made of the release.\n"
    page += "Fitting is no proof that a patch is enough: the checks against vLLM and the truth check decide that.\n\n"
    page += "| patch | " + " | ".join(fares) + " |\n|---|" + "---|" * len(fares) + "\n"
    for index, patch in enumerate(series.patches):
        page += f"| {patch.id} | " + " | ".join(verdict(outcomes[index]) for outcomes in fares.values()) + " |\n"
    return page

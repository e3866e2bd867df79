"""Lint a series: its schema, its headers, its probes, and its fit to the release that it names."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement

from ansible.module_utils.aerie.patching import fold
from ansible.module_utils.aerie.patching.series import HEADER_FIELDS, SeriesRefusal
from tools import serieskit
from tools.serieskit.load import read_series

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.patching.series import Series, SeriesPatch
    from tools.serieskit.load import Release


def lint_schema(directory: Path) -> list[str]:
    """The faults that keep the series from being read."""
    try:
        read_series(directory)
    except SeriesRefusal as refusal:
        return [refusal.found]
    return []


def lint(directory: Path, release: Release | None) -> list[str]:
    """Every fault of the series in ``directory``. Without a release, checks that need its files are left out."""
    faults = lint_schema(directory)
    if faults:
        return faults
    series = read_series(directory)
    if directory.name != f"{series.distribution}-{series.version}":
        faults.append(f"{directory.name}: the directory is to be called {series.distribution}-{series.version}")
    for patch in series.patches:
        found = [*_header(patch), *_hunks(patch), *_drop_when(series, patch), *_test(patch)]
        faults += [f"{series.name}: {patch.id}: {text}" for text in found]
    if release is not None:
        faults += [f"{series.name}: {text}" for text in [*_digests(series, release), *_folds(series, release)]]
    return faults


def _header(patch: SeriesPatch) -> list[str]:
    lines = patch.parsed.header.splitlines()
    fields = {line.split(":", 1)[0]: line.split(":", 1)[1].strip() for line in lines if re.match(r"[A-Z]\w+:", line)}
    faults = [f"the header lacks {name}" for name in HEADER_FIELDS if not fields.get(name)]
    if "License" in fields and "Apache-2.0" not in fields["License"]:
        faults.append(f"License is {fields['License']!r}; a patch of Apache-2.0 code says Apache-2.0")
    wanted = ", ".join(str(number) for number in patch.faults)
    if "Fault" in fields and fields["Fault"] != wanted:
        faults.append(f"Fault is {fields['Fault']!r} in the header and {wanted!r} in series.yml")
    return faults


def _hunks(patch: SeriesPatch) -> list[str]:
    faults = []
    for edit in patch.parsed.files:
        moved = 0
        for number, hunk in enumerate(edit.hunks, 1):
            tags = "".join(tag for tag, _ in hunk.lines)
            before, after = len(tags) - len(tags.lstrip(" ")), len(tags) - len(tags.rstrip(" "))
            if before > 1 or after > 1 or "   " in tags:
                faults.append(f"{edit.path}, hunk {number}: more than one line of context (write it with -U1)")
            start = hunk.new_start - 1 if hunk.new_count else hunk.new_start
            if start != hunk.index + moved:
                faults.append(f"{edit.path}, hunk {number}: the new line number does not follow (refresh the series)")
            moved += hunk.new_count - hunk.old_count
    return faults


def _drop_when(series: Series, patch: SeriesPatch) -> list[str]:
    try:
        requirement = Requirement(patch.drop_when)
    except InvalidRequirement as error:
        return [f"drop_when {patch.drop_when!r} is no requirement: {error}"]
    if not requirement.specifier:
        return [f"drop_when {patch.drop_when!r} names no version"]
    if requirement.name == series.distribution and requirement.specifier.contains(series.version, prereleases=True):
        return [f"drop_when {patch.drop_when!r} already holds for {series.version}: drop the patch"]
    return []


def _test(patch: SeriesPatch) -> list[str]:
    file, _, name = patch.test.partition("::")
    path = serieskit.ROOT / file
    if not path.is_file():
        return [f"its test {patch.test} does not exist: no file {file}"]
    wanted = name.split("[")[0].split("::")
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for part in wanted:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = [node for node in body if isinstance(node, kinds) and node.name == part]
        if not found:
            return [f"its test {patch.test} does not exist: no {part} in {file}"]
        body = found[-1].body
    return []


def _digests(series: Series, release: Release) -> list[str]:
    faults = []
    for path, digest in series.files.items():
        found = release.digest(path)
        if found != digest:
            faults.append(f"files: {path} has sha256 {found} in the release, {digest} in series.yml")
    added = [module.target for module in series.modules if release.read(module.target) is not None]
    return faults + [f"modules: the release has a file {path} itself" for path in added]


def _folds(series: Series, release: Release) -> list[str]:
    """Every prefix of the series applies and compiles, and every probe holds with its patch and fails without it."""
    faults: list[str] = []
    now: dict[str, bytes | None] = release.pristine(list(series.files))
    modules = {module.target: module.content for module in series.modules}
    for patch in series.patches:
        after, outcomes = fold.fold([patch], now)
        if outcomes[0].state != fold.FITS:
            faults.append(f"{patch.id}: {outcomes[0].state}: {outcomes[0].note}")
            continue
        faults += [f"{patch.id}: {text}" for path in patch.paths for text in _compiles(path, after[path])]
        faults += [f"{patch.id}: {text}" for text in _bound(patch, now, after, modules)]
        now = after
    for path, content in modules.items():
        faults += [f"module {text}" for text in _compiles(path, content)]
    final = {**now, **modules}
    for patch in series.patches:
        lost = [grep for grep in patch.greps if not fold.grep_holds(final.get(grep.file), grep)]
        faults += [f"{patch.id}: its probe {grep.pattern!r} fails with the whole series" for grep in lost]
    return faults


def _compiles(path: str, content: bytes | None) -> list[str]:
    if content is None or not path.endswith(".py"):
        return []
    try:
        compile(content, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return [f"{path} does not compile with it: {error}"]
    return []


def _bound(patch: SeriesPatch, before: dict[str, Any], after: dict[str, Any], modules: dict[str, bytes]) -> list[str]:
    faults = []
    for grep in patch.greps:
        if grep.file in modules:
            continue  # the whole file is ours; the pattern is held against it with the whole series
        if not fold.grep_holds(after.get(grep.file), grep):
            faults.append(f"its probe {grep.pattern!r} fails although the patch is applied")
        elif fold.grep_holds(before.get(grep.file), grep):
            faults.append(f"its probe {grep.pattern!r} holds without the patch, so it proves nothing")
    if not any(grep.file in patch.paths for grep in patch.greps):
        faults.append("no probe looks into a file that the patch edits")
    return faults


def lint_stack(path: Path, stack: dict[str, Any], series: dict[str, Series]) -> list[str]:
    """Whether the series of a stack exist and mend every fault that the stack has, and no other."""
    faults = []
    mended: set[str] = set()
    for name in stack.get("series") or []:
        if name not in series:
            faults.append(f"{path.name}: the series {name} does not exist")
            continue
        mended |= {str(number) for patch in series[name].patches for number in patch.faults}
    listed = {str(number) for number in stack.get("faults") or []}
    faults += [f"{path.name}: no patch mends fault {number}" for number in sorted(listed - mended)]
    # The audit would not notice that its patch is gone.
    return faults + [
        f"{path.name}: fault {number}, which its series mends, is not listed" for number in sorted(mended - listed)
    ]

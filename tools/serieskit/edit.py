"""Make a patch of an edited file in an environment, and renumber patches after lines moved."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from ansible.module_utils.aerie.distributions import installed as dist
from ansible.module_utils.aerie.patching import diff, fold
from ansible.module_utils.aerie.patching.series import SeriesRefusal, from_raw
from tools.serieskit.load import CannotRunError, read_raw, read_series

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.patching.series import Series
    from tools.serieskit.load import Release

HEADER = """Description: {title}
Fault: TODO
Origin: vendor
Forwarded: no
License: Apache-2.0 (quotes {distribution} {version}, Apache-2.0)

"""
ENTRY = """  - id: {id}
    title: {title}
    faults: []
    breaks: 'TODO: the exact error without the patch, or "silent: ..."'
    since: TODO
    upstream: none
    drop_when: {distribution} > {version}
    test: TODO
    probes:
      grep:
"""


def environment(path: Path) -> Path:
    """The root of an environment, given as a directory, a link or its site-packages."""
    return dist.environment_root(path.absolute())


def unified(path: str, before: bytes, after: bytes) -> str:
    """The difference with one line of context, and with the mark for a missing last line end."""
    old, new = (text.decode("utf-8").splitlines(keepends=True) for text in (before, after))
    if any("\n" not in line for line in [*old[:-1], *new[:-1]]):
        raise CannotRunError(f"{path} has line ends that a patch cannot carry")
    lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", n=1)
    mark = "\n\\ No newline at end of file\n"
    return "".join(line if line.endswith("\n") else line + mark for line in lines)


def edited_files(root: Path, series: Series, release: Release, only: list[str]) -> dict[str, tuple[bytes, bytes]]:
    """For every file edited in the environment, the bytes that it should have and those that it has."""
    installed = dist.find(root, series.distribution)
    if installed is None:
        raise CannotRunError(f"{series.distribution} is not installed in {root}")
    if installed.version != series.version:
        raise CannotRunError(
            f"{root} has {series.distribution} {installed.version}, the series is for {series.version}"
        )
    record = dist.Record.parse((installed.site_packages / installed.record_path).read_bytes())
    ours = {module.target for module in series.modules}
    wanted, _ = fold.fold(series.patches, release.pristine(list(series.files)))
    found: dict[str, tuple[bytes, bytes]] = {}
    for path, digest in record.digests.items():
        if path in ours or (only and path not in only) or not path.endswith(".py"):
            continue
        current = (installed.site_packages / path).read_bytes() if (installed.site_packages / path).is_file() else None
        if current is None or (dist.sha256(current) == digest and path not in wanted):
            continue
        target = wanted.get(path) or release.read(path)
        if dist.sha256(current) == digest and target != current:
            raise CannotRunError(f"{path} in {root} is not patched: run playbooks/patch.yml first")
        if target is not None and target != current:
            found[path] = (target, current)
    missing = [path for path in only if path not in found]
    if missing:
        raise CannotRunError(f"not edited, or not of {series.distribution}: {', '.join(missing)}")
    return found


def probe_line(before: bytes, after: bytes) -> tuple[str, bool]:
    """A pattern that identifies the edit, and whether it must be absent: a line of one of the two texts only."""
    old, new = (text.decode("utf-8").splitlines() for text in (before, after))
    for lines, other_lines, absent in ((new, old, False), (old, new, True)):
        for line in lines:
            if line.strip() and line not in other_lines:
                return f"^{re.escape(line)}$".replace(r"\ ", " "), absent
    return "TODO", False


def new_patch(directory: Path, root: Path, slug: str, title: str, release: Release, only: list[str]) -> list[str]:
    """Write ``NNNN-slug.patch`` and its entry in ``series.yml``; return the files that it edits."""
    series = read_series(directory)
    edits = edited_files(root, series, release, only)
    if not edits:
        raise CannotRunError(f"no file of {series.distribution} in {root} differs from what the series makes of it")
    number = max(int(patch.id[:4]) for patch in series.patches) + 1
    name = f"{number:04d}-{slug}"
    facts = {"id": name, "title": title, "distribution": series.distribution, "version": series.version}
    text = HEADER.format(**facts) + "".join(unified(path, *pair) for path, pair in edits.items())
    entry = ENTRY.format(**facts)
    for path, pair in edits.items():
        pattern, absent = probe_line(*pair)
        quoted = pattern.replace("'", "''")
        entry += f"        - file: {path}\n          pattern: '{quoted}'\n" + (
            "          absent: true\n" if absent else ""
        )
    document = (directory / "series.yml").read_text(encoding="utf-8")
    for path in edits:
        if path not in series.files:
            document = re.sub(r"(?m)^files:\n", f"files:\n  {path}: {release.digest(path)}\n", document, count=1)
    if re.search(r"(?m)^- id:", document):
        entry = re.sub(r"(?m)^  ", "", entry)  # as the entries before it stand
    patch_file = directory / f"{name}.patch"
    patch_file.write_bytes(text.encode("utf-8"))
    _replace_document(directory, document.rstrip("\n") + "\n" + entry, patch_file)
    return list(edits)


def _replace_document(directory: Path, document: str, new_file: Path) -> None:
    file = directory / "series.yml"
    before = file.read_bytes()
    file.write_text(document, encoding="utf-8")
    try:
        from_raw(read_raw(directory))
    except SeriesRefusal as refusal:
        file.write_bytes(before)
        new_file.unlink()
        raise CannotRunError(
            f"the entry does not fit at the end of {file} (patches must be the last key): {refusal.found}"
        ) from refusal


def relocate(content: bytes, edit: diff.FileDiff) -> tuple[bytes, list[int]]:
    """Apply a diff wherever its lines now are; return the result, and the places in ``content``, from 0.

    Of lines that stand in several places, those are taken that moved as far as the hunk before, or else as far as the
    nearest hunk which stands in one place only. Raises ``CannotRunError`` when a place is in doubt.
    """
    lines = diff.split_lines(content)
    backwards = diff.reverse(edit).hunks
    result: list[bytes] = []
    taken: list[int] = []
    done = moved = 0
    for number, (hunk, back) in enumerate(zip(edit.hunks, backwards, strict=True), 1):
        places = [place for place in diff.positions(lines, hunk.old) if place >= done]
        near = places[0] if len(places) == 1 else hunk.index + diff.shift_near(lines, backwards, back)
        place = next((at for at in (hunk.index + moved, near) if at in places), None)
        if place is None:
            where = f"at lines {', '.join(str(p + 1) for p in places)}" if places else "nowhere"
            raise CannotRunError(f"{edit.path}, hunk {number}: its lines are {where}; edit the patch by hand")
        result += [*lines[done:place], *hunk.new]
        taken.append(place)
        done = place + len(hunk.old)
        moved = place - hunk.index
    return b"".join([*result, *lines[done:]]), taken


def renumbered(text: str, parsed: diff.Patch, places: list[int]) -> str:
    """The text of a patch with its hunks at ``places``, counted from 0, and nothing else changed."""
    hunks = [hunk for edit in parsed.files for hunk in edit.hunks]
    shifts: list[int] = []
    for edit in parsed.files:
        shift = 0
        for hunk in edit.hunks:
            shifts.append(shift)
            shift += hunk.new_count - hunk.old_count
    numbers = iter(zip(hunks, places, shifts, strict=True))

    def header(_match: re.Match[str]) -> str:
        hunk, place, shift = next(numbers)
        old = place + (1 if hunk.old_count else 0)
        new = place + shift + (1 if hunk.new_count else 0)
        sides = (("-", old, hunk.old_count), ("+", new, hunk.new_count))
        return " ".join(["@@", *(f"{s}{at}{'' if count == 1 else f',{count}'}" for s, at, count in sides), "@@"])

    return re.sub(r"(?m)^@@ -[\d,]+ \+[\d,]+ @@", header, text)


def refresh(directory: Path, release: Release) -> list[str]:
    """Rewrite line numbers and digests after an edit of the series or for another release; return what changed.

    All patches are computed before any is written. Raises ``SeriesRefusal`` for a series that cannot be read, such as
    one whose patches are not in the order of their numbers.
    """
    raw = read_raw(directory)
    series = from_raw(raw)
    document = (directory / "series.yml").read_text(encoding="utf-8")
    now: dict[str, bytes] = {}
    new_texts: dict[str, str] = {}
    for patch in series.patches:
        places: list[int] = []
        for edit in patch.parsed.files:
            before = now.get(edit.path, release.read(edit.path))
            if before is None:
                raise CannotRunError(f"{patch.id}: the release has no file {edit.path}")
            try:
                now[edit.path], taken = relocate(before, edit)
            except CannotRunError as error:
                raise CannotRunError(f"{patch.id}: {error}") from None
            places += taken
        text = renumbered(raw["texts"][patch.id], patch.parsed, places)
        if text != raw["texts"][patch.id]:
            new_texts[patch.id] = text
    for path, digest in series.files.items():
        document = document.replace(f"{path}: {digest}", f"{path}: {release.digest(path)}")
    changed = [f"{name}.patch" for name in new_texts]
    for name, text in new_texts.items():
        (directory / f"{name}.patch").write_bytes(text.encode("utf-8"))
    if document != (directory / "series.yml").read_text(encoding="utf-8"):
        (directory / "series.yml").write_text(document, encoding="utf-8")
        changed.append("series.yml")
    return changed

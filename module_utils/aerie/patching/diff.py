"""Unified diffs: a parser, and an applier that accepts no fuzz and no offset."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(?: .*)?\r?\n?$")
_REFUSED = (b"rename ", b"copy ", b"GIT binary patch", b"Binary files ", b"old mode ", b"deleted file")


class DiffError(ValueError):
    """The text is not a unified diff that this project accepts."""


class ConflictError(Exception):
    """A hunk does not fit at the line that it names."""

    def __init__(self, path: str, hunk: int, line: int, reason: str) -> None:
        super().__init__(f"{path}, hunk {hunk} (line {line}): {reason}")
        self.path = path
        self.hunk = hunk
        self.line = line
        self.reason = reason


@dataclass(frozen=True)
class Hunk:
    """One hunk; ``lines`` holds ``(tag, text)`` with tag in ``" -+"`` and the line end in text."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    lines: tuple[tuple[str, bytes], ...]

    @property
    def old(self) -> list[bytes]:
        """The lines that must be in the file."""
        return [text for tag, text in self.lines if tag != "+"]

    @property
    def new(self) -> list[bytes]:
        """The lines that take their place."""
        return [text for tag, text in self.lines if tag != "-"]

    @property
    def index(self) -> int:
        """Where ``old`` starts, counted from 0; an empty old side goes after ``old_start``."""
        return self.old_start - 1 if self.old_count else self.old_start


@dataclass(frozen=True)
class FileDiff:
    """All hunks of one file."""

    path: str
    hunks: tuple[Hunk, ...]


@dataclass(frozen=True)
class Patch:
    """A patch file: the header text before the first diff, and the diffs."""

    header: str
    files: tuple[FileDiff, ...]


def split_lines(content: bytes) -> list[bytes]:
    """Split at line feeds only and keep them (``bytes.splitlines`` would split at carriage returns too)."""
    parts = content.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def safe_path(path: str) -> str:
    """Return ``path`` if it is relative and stays inside; raise ``DiffError`` otherwise."""
    parts = path.split("/")
    if not path or path.startswith("/") or "\\" in path or any(p in ("", ".", "..") for p in parts):
        raise DiffError(f"path {path!r} is not a plain path relative to site-packages")
    return path


def _path(line: bytes, prefix: bytes) -> str:
    name = line[4:].rstrip(b"\r\n").split(b"\t")[0]
    if name == b"/dev/null":
        raise DiffError("files are added as modules of the series, not by a patch, and never deleted")
    if not name.startswith(prefix):
        raise DiffError(f"path {name.decode(errors='replace')!r} lacks the prefix {prefix.decode()!r}")
    return safe_path(name[len(prefix) :].decode("utf-8"))


def _read_hunk(lines: list[bytes], at: int) -> tuple[Hunk, int]:
    match = _HUNK.match(lines[at])
    if match is None:
        raise DiffError(f"line {at + 1}: malformed hunk header {lines[at].decode(errors='replace')!r}")
    old_start, new_start = int(match.group(1)), int(match.group(3))
    old_count = int(match.group(2)) if match.group(2) is not None else 1
    new_count = int(match.group(4)) if match.group(4) is not None else 1
    body: list[tuple[str, bytes]] = []
    old_left, new_left = old_count, new_count
    at += 1
    while at < len(lines):
        line = lines[at]
        if line.startswith(b"\\"):
            if not body:
                raise DiffError(f"line {at + 1}: no line before the end-of-file mark")
            tag, text = body[-1]
            body[-1] = (tag, text[:-2] if text.endswith(b"\r\n") else text[:-1])
            at += 1
            continue
        if old_left == 0 and new_left == 0:
            break
        # Editors strip the blank of an empty context line; the meaning stays clear.
        tag = line[:1].decode("latin-1") if line.strip(b"\r\n") else " "
        text = line[1:] if line.strip(b"\r\n") else line
        if tag not in (" ", "-", "+"):
            raise DiffError(f"line {at + 1}: the hunk has fewer lines than its header says")
        old_left -= tag != "+"
        new_left -= tag != "-"
        if old_left < 0 or new_left < 0:
            raise DiffError(f"line {at + 1}: the hunk has other line counts than its header says")
        body.append((tag, text))
        at += 1
    if old_left or new_left:
        raise DiffError("the last hunk ends before its header's line counts are reached")
    if all(tag == " " for tag, _ in body):
        raise DiffError(f"hunk at line {old_start} changes nothing")
    return Hunk(old_start, old_count, new_start, new_count, tuple(body)), at


def parse(text: bytes) -> Patch:
    """Parse a patch file of unified diffs with ``a/`` and ``b/`` prefixes.

    Raises ``DiffError`` for whatever is malformed, touches nothing, adds, deletes, renames,
    or lies outside site-packages.
    """
    lines = split_lines(text)
    files: list[FileDiff] = []
    header: list[bytes] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(_REFUSED):
            raise DiffError(f"line {at + 1}: only plain edits are accepted: {line.decode(errors='replace')!r}")
        if not line.startswith(b"--- "):
            stray = files and line[:1] in (b"+", b"-", b" ", b"@") and line.rstrip() not in (b"--", b"")
            if stray or line.startswith(b"@@"):
                raise DiffError(f"line {at + 1}: text outside a hunk: {line.decode(errors='replace')!r}")
            if not files:
                header.append(line)
            at += 1
            continue
        if at + 1 >= len(lines) or not lines[at + 1].startswith(b"+++ "):
            raise DiffError(f"line {at + 1}: '---' without '+++'")
        path = _path(line, b"a/")
        if _path(lines[at + 1], b"b/") != path:
            raise DiffError(f"line {at + 1}: the two names of {path} differ")
        if any(known.path == path for known in files):
            raise DiffError(f"{path} has two sections; one patch names a file once")
        at += 2
        hunks: list[Hunk] = []
        while at < len(lines) and lines[at].startswith(b"@@"):
            hunk, at = _read_hunk(lines, at)
            hunks.append(hunk)
        if not hunks:
            raise DiffError(f"{path} has no hunk")
        files.append(FileDiff(path, tuple(hunks)))
    if not files:
        raise DiffError("the patch touches no file")
    return Patch(b"".join(header).decode("utf-8"), tuple(files))


def reverse(diff: FileDiff) -> FileDiff:
    """The diff that takes ``diff`` back."""
    swap = {"+": "-", "-": "+", " ": " "}
    return FileDiff(
        diff.path,
        tuple(
            Hunk(h.new_start, h.new_count, h.old_start, h.old_count, tuple((swap[t], x) for t, x in h.lines))
            for h in diff.hunks
        ),
    )


def positions(lines: list[bytes], wanted: list[bytes]) -> list[int]:
    """Every index, from 0, at which ``wanted`` stands in ``lines``."""
    if not wanted:
        return []
    return [i for i in range(len(lines) - len(wanted) + 1) if lines[i : i + len(wanted)] == wanted]


def _line_end(lines: list[bytes]) -> bytes | None:
    """The one line end that all lines share, ``None`` when they differ."""
    ends = {b"\r\n" if line.endswith(b"\r\n") else b"\n" for line in lines if line.endswith(b"\n")}
    return ends.pop() if len(ends) == 1 else None


def _with_line_end(text: bytes, old: bytes, new: bytes) -> bytes:
    return text[: -len(old)] + new if text.endswith(old) else text


def _fit_line_ends(lines: list[bytes], diff: FileDiff) -> FileDiff:
    """Give an all-LF patch CRLF ends for an all-CRLF file, and the other way round."""
    file_end = _line_end(lines)
    patch_end = _line_end([text for hunk in diff.hunks for _, text in hunk.lines])
    if file_end is None or patch_end is None or file_end == patch_end:
        return diff
    hunks = []
    for hunk in diff.hunks:
        body = tuple((tag, _with_line_end(text, patch_end, file_end)) for tag, text in hunk.lines)
        hunks.append(Hunk(hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count, body))
    return FileDiff(diff.path, tuple(hunks))


def _reason(lines: list[bytes], hunk: Hunk) -> str:
    found = positions(lines, hunk.old)
    if len(found) == 1:
        offset = found[0] - hunk.index
        return f"the lines are at line {found[0] + 1} instead (offset {offset:+d}); refresh the series"
    if found:
        places = ", ".join(str(i + 1) for i in found)
        return f"the lines are not there, but at lines {places}; refresh the series"
    already = positions(lines, hunk.new)
    if already and any(tag == "+" for tag, _ in hunk.lines):
        return f"the edit is there already, at line {already[0] + 1}"
    have = lines[hunk.index : hunk.index + len(hunk.old)]
    for number, want in enumerate(hunk.old):
        got = have[number] if number < len(have) else b"<end of file>"
        if got != want:
            show = [x.decode(errors="replace").rstrip("\r\n") for x in (want, got)]
            return f"line {hunk.index + number + 1} should be {show[0]!r} and is {show[1]!r}"
    return "the lines fit nowhere"


def apply(content: bytes, diff: FileDiff) -> bytes:
    """Apply ``diff`` strictly: every hunk at its line, every context line equal.

    Line ends are adapted only when the file and the patch each use one kind throughout.
    Raises ``ConflictError`` with the place where a hunk would fit.
    """
    lines = split_lines(content)
    diff = _fit_line_ends(lines, diff)
    out: list[bytes] = []
    done = 0
    for number, hunk in enumerate(diff.hunks, 1):
        old = hunk.old
        if hunk.index < done:
            raise ConflictError(diff.path, number, hunk.old_start, "the hunk overlaps the one before it")
        if hunk.index > len(lines) or lines[hunk.index : hunk.index + len(old)] != old:
            raise ConflictError(diff.path, number, hunk.old_start, _reason(lines, hunk))
        out += lines[done : hunk.index] + hunk.new
        done = hunk.index + len(old)
    result = out + lines[done:]
    for number, line in enumerate(result[:-1], 1):
        if not line.endswith(b"\n"):
            raise ConflictError(diff.path, len(diff.hunks), number, "text would follow a line without line end")
    return b"".join(result)


def shift_near(lines: list[bytes], hunks: tuple[Hunk, ...], hunk: Hunk) -> int:
    """How many lines the hunk nearest to ``hunk`` has moved, of those whose new lines stand in one place only."""
    places = [(other, positions(lines, other.new)) for other in hunks]
    sure = [(other.new_start, found[0] + 1) for other, found in places if len(found) == 1]
    return min(((abs(start - hunk.new_start), now - start) for start, now in sure), default=(0, 0))[1]


def recover(content: bytes, diffs: list[FileDiff]) -> bytes:
    """Take back whatever edits of ``diffs`` (in series order) are found in ``content``, anywhere.

    This guesses: use the result only if its digest is a known one.
    """
    lines = split_lines(content)
    for diff in reversed(diffs):
        fitted = _fit_line_ends(lines, diff)
        for hunk in reversed(fitted.hunks):
            found = positions(lines, hunk.new)
            if found:
                expected = hunk.new_start + shift_near(lines, fitted.hunks, hunk)
                _, nearest = min((abs(index + 1 - expected), index) for index in found)
                lines[nearest : nearest + len(hunk.new)] = hunk.old
    return b"".join(lines)

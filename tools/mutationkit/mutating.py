# SPDX-License-Identifier: Apache-2.0
"""Damage for the mutation table: a series without one patch, one hunk less, an engine that changed under a contract."""

from __future__ import annotations

import contextlib
import copy
import difflib
import os
import re
import shutil
from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.contracts.source_tree import SourceTree
from ansible.module_utils.aerie.distributions.installed import site_packages_of
from ansible.module_utils.aerie.patching import diff

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ansible.module_utils.aerie.patching.series import Series


class CannotMutateError(Exception):
    """The damage that was asked for cannot be done; the text says why."""


# The environment to damage


def link_copy(source: Path, target: Path) -> None:
    """Copy an environment by hard links. Files in it must be replaced, never written in place."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source.resolve(), target, symlinks=True, copy_function=os.link)


def replace(path: Path, content: bytes | None) -> None:
    """Give a file new bytes (None: remove it) without touching what shares its inode."""
    if content is None:
        path.unlink(missing_ok=True)
        return
    temporary = path.with_name(f".{path.name}.mutation")
    temporary.write_bytes(content)
    temporary.replace(path)


@contextlib.contextmanager
def replaced(files: dict[Path, bytes]) -> Iterator[None]:
    """Give files new bytes for as long as the context lasts."""
    before = {path: path.read_bytes() for path in files}
    try:
        for path, content in files.items():
            replace(path, content)
        yield
    finally:
        for path, content in before.items():
            replace(path, content)


# Patches and hunks taken back


def take_back(content: bytes, hunk: diff.Hunk, hunks: tuple[diff.Hunk, ...] = ()) -> bytes:
    """The content without one hunk, wherever it stands now; ``hunks`` of the same file tell how far lines have moved.

    Raises ``CannotMutateError`` when it is not to be found.
    """
    lines = diff.split_lines(content)
    expected = hunk.new_start + diff.shift_near(lines, hunks, hunk)
    pairs = [(hunk.new, hunk.old), _core(hunk)]
    for new, old in pairs:
        found = diff.positions(lines, new)
        if found:
            _, at = min((abs(index + 1 - expected), index) for index in found)
            return b"".join([*lines[:at], *old, *lines[at + len(new) :]])
    raise CannotMutateError(f"hunk at line {hunk.new_start} cannot be found: a later patch rewrites it")


def _core(hunk: diff.Hunk) -> tuple[list[bytes], list[bytes]]:
    """New and old lines without the unchanged lines around them, which a neighbouring patch may have changed."""
    body = list(hunk.lines)
    while body and body[0][0] == " ":
        body.pop(0)
    while body and body[-1][0] == " ":
        body.pop()
    return [text for tag, text in body if tag != "-"], [text for tag, text in body if tag != "+"]


def without_patch(content: bytes, file: diff.FileDiff) -> bytes:
    """The content with every hunk of one patch taken back, the last one first."""
    for hunk in reversed(file.hunks):
        content = take_back(content, hunk, file.hunks)
    return content


def states(series: Series, pristine: dict[str, bytes]) -> list[dict[str, bytes]]:
    """The files of a series before its first patch and after each one."""
    found = [dict(pristine)]
    for patch in series.patches:
        now = dict(found[-1])
        for one in patch.parsed.files:
            now[one.path] = diff.apply(now[one.path], one)
        found.append(now)
    return found


def drop(raw: dict[str, Any], series: Series, pristine: dict[str, bytes], name: str) -> dict[str, Any]:
    """The series without one patch, as its author would rebase it: the later patches are made anew.

    Raises ``CannotMutateError`` when a later patch builds on the dropped one.
    """
    place = [patch.id for patch in series.patches].index(name)
    dropped = {one.path: one for one in series.patches[place].parsed.files}
    before = states(series, pristine)
    after = [
        {path: without_patch(text, dropped[path]) if path in dropped else text for path, text in state.items()}
        for state in before[place + 1 :]
    ]
    rebased = copy.deepcopy(raw)
    del rebased["texts"][name]
    for number, patch in enumerate(series.patches[place + 1 :]):
        rebased["texts"][patch.id] = patch.parsed.header + _diffs(after[number], after[number + 1], patch.id)
    document = rebased["document"]
    document["patches"] = [one for one in document["patches"] if one["id"] != name]
    touched = {path for patch in series.patches if patch.id != name for path in patch.paths}
    document["files"] = {path: digest for path, digest in document["files"].items() if path in touched}
    for one in document["patches"]:
        # A probe may look at a file that only the dropped patch touched.
        known = {*touched, *[module["target"] for module in document.get("modules") or []]}
        one["probes"]["grep"] = [grep for grep in one["probes"].get("grep", []) if grep["file"] in known]
    return rebased


def _diffs(old: dict[str, bytes], new: dict[str, bytes], name: str) -> str:
    text = ""
    for path in sorted(old):
        if old[path] != new[path]:
            one, other = (content.decode().splitlines(keepends=True) for content in (old[path], new[path]))
            text += "".join(difflib.unified_diff(one, other, f"a/{path}", f"b/{path}", n=1))
    if not text:
        raise CannotMutateError(f"{name} changes nothing without it")
    return text


# What a contract relies on, changed


def damage_contract(environment: Path, contract: dict[str, Any]) -> tuple[Path, bytes, str]:
    """The file, its damaged bytes, and the damage in words: the smallest change that breaks a contract."""
    tree = SourceTree(site_packages_of(environment)[0])
    if "call" in contract:
        return _damage_call(tree, contract)
    symbol = tree.resolve(str(contract.get("defines") or contract["source"]))
    module = tree.module(symbol.module) if symbol else None
    if symbol is None or module is None:
        raise CannotMutateError(f"{contract} does not hold before the damage")
    if "source" in contract:
        return _damage_source(module.path, module.text, str(contract["pattern"]))
    lines = module.text.split("\n")
    at = getattr(symbol.node, "lineno", 1) - 1
    name = symbol.qualname.split(".")[-1]
    wanted = contract.get("parameters") or []
    target = str(wanted[-1]) if wanted else name
    end = getattr(symbol.node, "end_lineno", at + 1)
    for number in range(at, min(end, at + 40)):
        changed = re.sub(rf"\b{re.escape(target)}\b", f"{target}_renamed", lines[number], count=1)
        if changed != lines[number]:
            lines[number] = changed
            return module.path, "\n".join(lines).encode(), f"vLLM renames {target} of {symbol.qualname}"
    raise CannotMutateError(f"{target} not found at {module.path}:{at + 1}")


def _damage_source(path: Path, text: str, pattern: str) -> tuple[Path, bytes, str]:
    damaged = text
    for _ in range(200):
        match = re.search(pattern, damaged, re.MULTILINE)
        if match is None:
            return path, damaged.encode(), f"vLLM writes another line than /{pattern}/"
        middle = (match.start() + match.end()) // 2
        damaged = damaged[:middle] + "_" + damaged[middle:]
    raise CannotMutateError(f"/{pattern}/ matches whatever is done to it")


def _damage_call(tree: SourceTree, contract: dict[str, Any]) -> tuple[Path, bytes, str]:
    path = tree.root / str(contract["in"])
    text = path.read_text(encoding="utf-8")
    name, wanted = next(iter(contract["passes"].items()))
    # Only inside the call itself: the same keyword may be given elsewhere.
    callee = str(contract["call"]).rsplit(".", 1)[-1]
    start = re.search(rf"\b{re.escape(callee)}\(", text)
    place = re.compile(rf"\b{re.escape(name)}=").search(text, start.end() if start else 0)
    if place is None:
        raise CannotMutateError(f"{name}= is not given in {contract['in']}")
    if wanted == "any":
        return path, (text[: place.start()] + f"_{name}=" + text[place.end() :]).encode(), f"our call gives _{name}"
    other = "None" if wanted is not None else "0"
    rest = re.sub(r"^[^,)\n]+", other, text[place.end() :], count=1)
    return path, (text[: place.end()] + rest).encode(), f"our call gives {name}={other}"

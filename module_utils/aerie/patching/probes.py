"""Probes: look for the lines and the importable names that each patch promises. Digests play no part here."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.distributions import installed as dist
from ansible.module_utils.aerie.patching import fold
from ansible.module_utils.aerie.patching.series import Grep
from ansible.module_utils.aerie.shared.durable import read_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ansible.module_utils.aerie.patching.series import Series
    from ansible.module_utils.aerie.shared.checks import Checks

# Answers leave by a copy of the first output; what imported code prints goes to the second.
_PROGRAM = """
import importlib, json, os, sys, time, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for name in json.load(sys.stdin):
    module, _, symbol = name.partition(":")
    print(json.dumps({"start": name}), file=answers, flush=True)
    began, error, where = time.monotonic(), "", ""
    try:
        found = importlib.import_module(module)
        where = getattr(found, "__file__", None) or ""
        for part in symbol.split(".") if symbol else ():
            found = getattr(found, part)
    except BaseException as problem:
        error = "%s: %s" % (type(problem).__name__, problem)
        traceback.print_exc()
    answer = {"name": name, "error": error, "file": where, "seconds": time.monotonic() - began}
    print(json.dumps(answer), file=answers, flush=True)
"""
_REMEDY = "see stderr for the trace; playbooks/rollback.yml restores the pristine files"


def collect(all_series: Iterable[Series]) -> dict[str, list[dict[str, Any]]]:
    """The grep and import probes of a series as plain data, each with the patch that it belongs to."""
    probes: dict[str, list[dict[str, Any]]] = {"grep": [], "imports": []}
    for series in all_series:
        for patch in series.patches:
            owner = {"patch": patch.id, "distribution": series.distribution}
            for grep in patch.greps:
                probes["grep"].append({**owner, "file": grep.file, "pattern": grep.pattern, "absent": grep.absent})
            probes["imports"] += [{**owner, "name": name} for name in patch.imports]
    return probes


def check_greps(root: Path, probes: list[dict[str, Any]], checks: Checks) -> list[str]:
    """Add one check for each grep probe; return a line of text for each: pattern, file, line numbers."""
    sites: dict[str, Path | None] = {}
    contents: dict[Path, bytes | None] = {}
    lines = []
    for probe in probes:
        name = probe["distribution"]
        if name not in sites:
            installed = dist.find(root, name)
            sites[name] = installed.site_packages if installed else None
        site = sites[name]
        if site is None:
            checks.add(f"grep {probe['patch']}", "fail", f"{name} is not installed", "installed", "provision first")
            continue
        file = site / probe["file"]
        if file not in contents:
            contents[file] = read_or_none(file)
        grep = Grep(probe["file"], probe["pattern"], bool(probe.get("absent", False)))
        numbers = fold.grep_lines(contents[file], grep)
        holds = fold.grep_holds(contents[file], grep)
        found = f"at line {', '.join(map(str, numbers))}" if numbers else "not there"
        if contents[file] is None:
            found = "no such file"
        remedy = "" if holds else "apply the series again (playbooks/patch.yml)"
        wanted = "not there" if grep.absent else "there"
        first = numbers[0] if numbers else None
        checks.require(f"grep {probe['patch']}: {grep.pattern}", holds, found, wanted, remedy, str(file), first)
        lines.append(f"{'ok  ' if holds else 'FAIL'} {probe['patch']}: {grep.pattern}  in {probe['file']}: {found}")
    return lines


def check_imports(root: Path, probes: list[dict[str, Any]], checks: Checks, timeout_s: float) -> str:
    """Import every name in one clean interpreter of the environment; return all that it wrote to stderr."""
    owners: dict[str, list[str]] = {}
    for probe in probes:
        owners.setdefault(probe["name"], []).append(probe["patch"])
    python = root / "bin" / "python"
    began = time.monotonic()
    try:
        done = subprocess.run(
            # -I: neither the caller's directory nor PYTHONPATH nor the user's packages may answer.
            [str(python), "-I", "-c", _PROGRAM],
            input=json.dumps(list(owners)),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        out, err, code = done.stdout, done.stderr, f"ended with code {done.returncode}"
    except subprocess.TimeoutExpired as error:
        out, err = (_decoded(stream) for stream in (error.stdout, error.stderr))
        code = f"took more than {timeout_s:.0f} s"
    except OSError as error:
        checks.add("imports", "fail", f"{python}: {error}", "an interpreter that runs", "provision the environment")
        return str(error)
    answers = [json.loads(line) for line in out.splitlines()]
    answered = {answer["name"]: answer for answer in answers if "name" in answer}
    started = [answer["start"] for answer in answers if "start" in answer]
    for name, patches in owners.items():
        label = f"import {name} ({', '.join(patches)})"
        answer = answered.get(name)
        if answer is not None:
            found = answer["error"] or "imported"
            ok = not answer["error"]
            checks.require(label, ok, found, "imported", "" if ok else _REMEDY, answer["file"] or None)
        else:
            during = started[-1] if started else "the start of the interpreter"
            checks.add(label, "fail", f"the interpreter {code}, during {during}", "imported", _REMEDY)
    if owners:
        checks.add("imports", "n/a", f"{len(answered)} names", f"{len(owners)} names", seconds=time.monotonic() - began)
    return err


def _decoded(stream: object) -> str:
    return stream.decode("utf-8", errors="replace") if isinstance(stream, bytes) else str(stream or "")

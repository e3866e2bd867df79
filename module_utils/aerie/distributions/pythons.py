"""Find a Python for the environment by running each candidate: a shim of pyenv may be on PATH and not run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterable, NamedTuple

from ansible.module_utils.aerie.distributions.versions import satisfies

PROBE = """
import json, platform, sys, sysconfig
import ctypes, sqlite3, ssl, zlib
print(json.dumps({
    "executable": getattr(sys, "_base_executable", sys.executable),
    "version": platform.python_version(),
    "implementation": platform.python_implementation(),
    "headers": sysconfig.get_paths()["include"],
}))
"""


class Python(NamedTuple):
    """One candidate: `problem` is empty when it fits."""

    path: str
    version: str
    problem: str
    headers: bool = False


def candidates(named: str, variables: dict[str, str]) -> list[str]:
    """Paths to try, the best first. A named Python is the only candidate."""
    if named:
        return [named]
    names = [f"python3.{minor}" for minor in (12, 11, 13, 10, 14)] + ["python3", "python"]
    folders = [*variables.get("PATH", os.defpath).split(os.pathsep), "/usr/local/bin", "/usr/bin"]
    found = [str(Path(folder) / name) for name in names for folder in folders]
    home = Path(variables.get("PYENV_ROOT") or str(Path(variables.get("HOME", "/root")) / ".pyenv"))
    roots = [home / "versions", Path("/opt/python"), Path("/opt")]
    # The variables may name the pyenv of another user, which this user cannot read.
    readable = [root for root in roots if os.access(root, os.R_OK | os.X_OK)]
    found += [str(path) for root in readable for path in sorted(root.glob("*/bin/python3"), reverse=True)]
    # The Python that runs this is known to run.
    found.insert(0, sys.executable)
    return [path for path in dict.fromkeys(found) if os.access(path, os.X_OK)]


def probe(path: str, wanted: str) -> Python:
    """Run one candidate and say why it does not fit, if it does not."""
    try:
        # Without `site` (-S): what is installed does not matter, and reading it takes longer than the rest.
        done = subprocess.run([path, "-I", "-S", "-c", PROBE], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return Python(path, "", f"does not run: {error}")
    if done.returncode:
        return Python(path, "", "does not run: " + (done.stderr.strip().splitlines() or ["no message"])[-1])
    facts = json.loads(done.stdout)
    version = str(facts["version"])
    # The Python that a virtual environment or a shim leads to: it stays when those are removed.
    path = str(facts["executable"] or path)
    headers = (Path(facts["headers"]) / "Python.h").is_file()
    if facts["implementation"] != "CPython":
        return Python(path, version, f"is {facts['implementation']}, wanted CPython", headers)
    if not satisfies(version, wanted):
        return Python(path, version, f"is {version}, wanted {wanted}", headers)
    return Python(path, version, "", headers)


def find(named: str, wanted: str, variables: dict[str, str]) -> tuple[Python | None, list[Python]]:
    """The first candidate that runs and fits, and all that were tried before it."""
    tried: list[Python] = []
    for path in candidates(named, variables):
        candidate = probe(path, wanted)
        if not candidate.problem:
            return candidate, tried
        tried.append(candidate)
    return None, tried


def describe(tried: Iterable[Python]) -> str:
    """What was tried, for a message."""
    return (
        "; ".join(f"{candidate.path} {candidate.problem}" for candidate in tried)
        or "no candidate on PATH or below ~/.pyenv"
    )


def facts(named: str, wanted: str) -> dict[str, Any]:
    """The chosen Python as plain data."""
    chosen, tried = find(named, wanted, dict(os.environ))
    return {
        "path": chosen.path if chosen else "",
        "version": chosen.version if chosen else "",
        "headers": bool(chosen and chosen.headers),
        "tried": describe(tried),
    }

"""Check that Python compiles the files that a series would write, before any is written."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Sequence

from ansible.module_utils.aerie.distributions.installed import python_version

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.patching.states import Change

_PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
faults = []
for path, source in json.load(sys.stdin):
    try:
        compile(source.encode("latin-1"), path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        faults.append((path, str(error)))
print(json.dumps(faults))
"""


def syntax_faults(root: Path, changes: Sequence[Change]) -> list[tuple[str, str]]:
    """The path and error of every changed Python file that does not compile.

    The environment's own interpreter compiles them where this one has another version.
    """
    sources = [(c.path, c.content) for c in changes if c.content is not None and c.path.endswith(".py")]
    if not sources:
        return []
    if python_version(root) not in (None, sys.version_info[:2]):
        answer = _ask(root / "bin" / "python", sources)
        if answer is not None:
            return answer
    faults = []
    for path, source in sources:
        fault = _compile(path, source)
        if fault:
            faults.append((path, fault))
    return faults


def _compile(path: str, source: bytes) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(source, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            return str(error)
    return ""


def _ask(python: Path, sources: list[tuple[str, bytes]]) -> list[tuple[str, str]] | None:
    """The same from another interpreter; ``None`` when it does not run."""
    payload = json.dumps([(path, source.decode("latin-1")) for path, source in sources])
    try:
        done = subprocess.run(
            [str(python), "-I", "-S", "-B", "-c", _PROGRAM],
            input=payload,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return [(path, text) for path, text in json.loads(done.stdout)]
    except (OSError, subprocess.SubprocessError, ValueError):
        return None

"""Running one command of the host program in the ML environment, for the modules that do so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Mapping

from ansible.module_utils.aerie.shared.refusal import Refusal

TAIL_CHARACTERS = 3000


def command_line(python: str, program: str, command: str, spec: str, check: bool, out: str = "") -> list[str]:
    """The argument list of one run."""
    line = [python, program, command, "--spec", spec]
    if check:
        line.append("--check")
    return [*line, "--out", out] if out else line


def process_variables(program: str, added: Mapping[str, str]) -> dict[str, str]:
    """The variables of a run: ours, those added, and a PYTHONPATH by which child processes find the host program."""
    return {**os.environ, **added, "PYTHONPATH": program}


def missing(python: str, program: str) -> Refusal | None:
    """Which of the two files that a run needs is not there; None when both are."""
    if Path(python).is_symlink() and not os.access(python, os.X_OK):
        # Not the same as an absent one: a user who cannot reach an environment must not build it again.
        found = f"{python} leads to {os.readlink(python)}, which is gone or which user {os.geteuid()} cannot run"
        remedy = "run as the user that provisioned it (ansible_become_user), or provision again"
        return Refusal("environment", found, "", remedy)
    if not os.access(python, os.X_OK):
        found = f"{python} is not there or cannot be run"
        return Refusal("environment", found, "", "provision the environment first (--tags provision)")
    if not Path(program).is_file():
        found = f"{program} is not there: the host program has not been copied"
        return Refusal("host program", found, "", "copy it (--tags extract does)")
    return None


def tail(text: str) -> str:
    """The last lines of a log, for a message."""
    cut = text.rstrip()[-TAIL_CHARACTERS:]
    return cut if len(cut) == len(text.rstrip()) else "... " + cut[cut.find("\n") + 1 :]


def last_document(text: str) -> dict[str, Any] | None:
    """The JSON object on the last line of a run's output, which is its result; None when there is none."""
    lines = text.strip().splitlines()
    try:
        document = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def run_program(
    line: list[str], spec: dict[str, Any], variables: dict[str, str], timeout: float
) -> tuple[dict[str, Any], str]:
    """Run the program with ``spec`` on its standard input; return its result and the end of its log.

    A run that ends without a result gets one that says so under ``msg``, with ``failed`` true.
    """
    with subprocess.Popen(
        line,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=variables,
        cwd="/",
        start_new_session=True,
    ) as process:
        try:
            out, log = process.communicate(json.dumps(spec).encode(), timeout=timeout)
        except subprocess.TimeoutExpired:
            # It has a session of its own: this ends everything that it started, and nothing else.
            os.killpg(process.pid, signal.SIGKILL)
            _, log = process.communicate()
            text = f"did not end within {timeout} seconds and was ended"
            return {"failed": True, "changed": False, "msg": text}, tail(log.decode(errors="replace"))
    stderr = tail(log.decode(errors="replace"))
    document = last_document(out.decode(errors="replace"))
    if document is None:
        text = f"ended with code {process.returncode} and gave no result"
        return {"failed": True, "changed": False, "msg": text}, stderr
    if process.returncode and not document.get("failed"):
        document.update(failed=True, msg=f"ended with code {process.returncode}: {document.get('msg', '')}")
    return document, stderr

"""The folder of a run's report: ``<reports>/<run>/report.json``, and ``<reports>/latest``, a link to the newest run."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.shared.durable import sync_folder, write_durably
from reporting.verdict import utc

if TYPE_CHECKING:
    from pathlib import Path

# Whoever may look at the folder may read what is in it.
MODE = 0o644


def run_name(started: float, pid: int) -> str:
    """Name of a run: UTC time and process id. Names sort by time, and two runs of one second differ."""
    return "{}-{}".format(utc(started).replace("-", "").replace(":", ""), pid)


def write(report: dict[str, Any], reports: Path) -> Path:
    """Write the report and point `latest` at its run; each is on disk as a whole or stays as it was."""
    folder = reports / str(report["run"])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.json"
    write_durably(path, (json.dumps(report, indent=1, default=str) + "\n").encode(), mode=MODE)
    link = reports / ".latest-{}".format(report["run"])
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(str(report["run"]))
    link.replace(reports / "latest")
    sync_folder(reports)
    return path

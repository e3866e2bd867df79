"""Jobs of ours that run in an environment, which is then neither replaced nor left."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ansible.module_utils.aerie.shared import processes
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from ansible.module_utils.aerie.environment.layout import Layout


def jobs_in(layout: Layout) -> list[int]:
    """The pids of our jobs in an environment: they import and start workers through its link, also later."""
    roots = (f"{layout.path}/", f"{layout.folder}/")
    found = []
    for entry in processes.PROC.iterdir():
        if not entry.name.isdigit() or processes.marker_of(int(entry.name)) is None:
            continue
        with contextlib.suppress(OSError):  # it has just ended
            program = (entry / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
            if program.startswith(roots):
                found.append(int(entry.name))
    return sorted(found)


def require_unused(layout: Layout) -> None:
    """Raise `Refusal` while a job of ours runs in an environment."""
    pids = jobs_in(layout)
    if pids:
        found = f"{layout.path} is in use by our job, pid {', '.join(map(str, pids))}"
        remedy = "wait for it to end, or end it: playbooks/stop.yml"
        raise Refusal("build", found, "an environment that nothing runs in", remedy)

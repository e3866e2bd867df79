"""Collects the results of our modules into one report, and prints the verdict at the end of the run."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ansible import context
from ansible.plugins.callback import CallbackBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import aerie_paths

from ansible.module_utils.aerie.shared.progress import progress_line
from reporting import folder, pages, terminal, verdict

DOCUMENTATION = r"""
name: aerie_report
type: aggregate
short_description: Verdict and report of a run
description:
  - Writes C(<reports>/<run>/report.json), points C(<reports>/latest) at it, and prints the verdict.
  - An error of this plugin is a warning and never fails a run.
  - A run of site.yml that checked nothing on a host ends with exit code 2.
options:
  reports:
    description: Folder of the reports on the controller.
    type: path
    env: [{name: AERIE_REPORTS}]
    ini: [{section: aerie_report, key: reports}]
  run:
    description: Name of this run. Empty makes one from the time and the process id.
    type: str
    default: ''
    env: [{name: AERIE_RUN}]
  silent:
    description: Write the report but print nothing, for a caller that reads it.
    type: bool
    default: false
    env: [{name: AERIE_REPORT_SILENT}]
"""

Hook = TypeVar("Hook", bound=Callable[..., None])


def guarded(hook: Hook) -> Hook:
    """Make an error of a hook a warning, printed once, so that it never ends a run."""

    @functools.wraps(hook)
    def call(self: CallbackModule, *args: Any, **kwargs: Any) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  (the run goes on after any error)
            self.complain(f"{hook.__name__}: {type(error).__name__}: {error}")

    return call  # type: ignore[return-value]  # the wrapper has the hook's own signature


class CallbackModule(CallbackBase):
    """Aggregates the key `aerie` of every result; reporting/verdict.py describes the form."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "aerie_report"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.started = time.time()
        self.hosts: dict[str, dict[str, Any]] = {}
        self.playbook = ""
        # The start of each running task, by host and task.
        self.began: dict[tuple[str, str], float] = {}
        self._complained = False

    def complain(self, text: str) -> None:
        """Warn once that the report is incomplete."""
        if not self._complained:
            self._complained = True
            self._display.warning(f"aerie_report: the report of this run is incomplete: {text}")

    def host(self, result: Any) -> dict[str, Any]:
        """The record of the host of a result."""
        return self.hosts.setdefault(result._host.get_name(), verdict.new_host())

    def collect(self, result: Any) -> None:
        """Add the sections of one result, and of its items when the task has a loop."""
        host = self.host(result)
        values = result._result
        entries = [
            item["aerie"]
            for item in [values, *(values.get("results") or [])]
            if isinstance(item, dict) and item.get("aerie")
        ]
        sections: list[Any] = []
        for entry in entries:
            verdict.add_sections(host, entry)
            sections += entry if isinstance(entry, list) else [entry]
        began = self.began.pop(self.key(result._host, result._task), None)
        if began is not None:
            seconds = time.monotonic() - began
            verdict.add_task(host, result._task.get_name().strip(), seconds, bool(values.get("changed")), sections)

    @guarded
    def v2_playbook_on_start(self, playbook: Any) -> None:
        self.playbook = str(getattr(playbook, "_file_name", ""))

    @staticmethod
    def key(host: Any, task: Any) -> tuple[str, str]:
        """The key of a running task on a host."""
        return host.get_name(), task._uuid

    @guarded
    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self.began[self.key(host, task)] = time.monotonic()

    @guarded
    def v2_runner_on_ok(self, result: Any) -> None:
        self.collect(result)

    @guarded
    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self.collect(result)
        if not ignore_errors:
            self.host(result)["failures"].append(
                {"task": result._task.get_name().strip(), "message": failure_text(result._result)}
            )

    @guarded
    def v2_runner_on_unreachable(self, result: Any) -> None:
        host = self.host(result)
        host["unreachable"] = True
        host["failures"].append({"task": result._task.get_name().strip(), "message": failure_text(result._result)})

    @guarded
    def v2_runner_retry(self, result: Any) -> None:
        progress = result._result.get("progress")
        if isinstance(progress, dict) and not self.get_option("silent"):
            self._display.display(f"{result._host.get_name()}: {progress_line(progress)}")

    @guarded
    def v2_playbook_on_stats(self, stats: Any) -> None:
        for name in stats.processed:
            summary = stats.summarize(name)
            host = self.hosts.setdefault(name, verdict.new_host())
            host["changed"] = summary["changed"]
            if not summary["failures"] and not summary["unreachable"]:
                # A failure that a rescue handled is no failure of the run.
                host["failures"] = []
        # A host that only ran a task of the controller has nothing to report.
        hosts = verdict.requested_hosts({name: host for name, host in self.hosts.items() if name in stats.processed})
        run = self.get_option("run") or folder.run_name(self.started, os.getpid())
        report = verdict.build(hosts, run, self.started, time.time(), command_of(self.playbook))
        try:
            written = folder.write(report, self.reports())
            path: object = written
            trouble = pages.try_write(report, written.parent)
            if trouble:
                self._display.warning(f"aerie_report: {trouble}")
        except OSError as error:
            path = f"not written: {error}"
        if not self.get_option("silent"):
            self._display.display("")
            colour = {"pass": "green", "fail": "red"}.get(report["verdict"], "yellow")
            for line in terminal.render(report, path):
                self._display.display(line, color=colour)
        ours = any(verdict.USAGE_SECTION in host["sections"] for host in self.hosts.values())
        if ours and report["verdict"] != verdict.PASS and stats_are_good(stats):
            # For Ansible a run is a success when no task failed, even if none of them checked anything.
            raise SystemExit(verdict.EXIT_CODES[report["verdict"]])

    def reports(self) -> Path:
        """Folder of the reports: as configured, else under $AERIE_VAR, else under var/ of the checkout."""
        chosen = self.get_option("reports")
        return Path(chosen) if chosen else Path(os.environ.get("AERIE_VAR") or aerie_paths.CHECKOUT / "var") / "reports"


def stats_are_good(stats: Any) -> bool:
    """Whether Ansible itself would end with 0."""
    return not any(stats.failures.values()) and not any(stats.dark.values())


def failure_text(result: dict[str, Any]) -> str:
    """Why a task failed, with the last lines that its command printed."""
    text = str(result.get("msg") or "failed")
    for key in ("stderr", "module_stderr", "module_stdout"):
        tail = str(result.get(key) or "").strip().splitlines()[-5:]
        if tail:
            return text + "\n" + "\n".join(tail)
    return text


def command_of(playbook: str) -> dict[str, Any]:
    """The command line, without the values of extra variables: they may be secrets."""
    arguments = context.CLIARGS
    names = ("tags", "skip_tags", "subset", "inventory", "check", "diff")
    return {
        "program": Path(sys.argv[0]).name,
        "playbook": playbook,
        **{key: list(v) if isinstance(v := arguments.get(key), (list, tuple)) else v for key in names},
    }

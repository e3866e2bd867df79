"""Collects what our modules found into one report, and says the verdict at the end of the run."""

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
from reporting import pages
from reporting import verdict as aerie_report

DOCUMENTATION = r"""
name: aerie_report
type: aggregate
short_description: Verdict and report of a run
description:
  - Writes C(<reports>/<run>/report.json), points C(<reports>/latest) at it, and prints the verdict.
  - What goes wrong here is a warning, and never makes a run fail.
  - A run of site.yml that checked nothing on a host ends with exit code 2.
options:
  reports:
    description: Folder of the reports on the controller.
    type: path
    env: [{name: AERIE_REPORTS}]
    ini: [{section: aerie_report, key: reports}]
  run:
    description: Name of this run; made from the time and the process id when empty.
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
    """A fault in the reporting is told once as a warning and never ends a run."""

    @functools.wraps(hook)
    def call(self: CallbackModule, *args: Any, **kwargs: Any) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  (whatever it is, the run goes on)
            self.complain(f"{hook.__name__}: {type(error).__name__}: {error}")

    return call  # type: ignore[return-value]  # the wrapper has the hook's own signature


class CallbackModule(CallbackBase):
    """Aggregates the key `aerie` of every result; see reporting/verdict.py for the form."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "aerie_report"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.started = time.time()
        self.hosts: dict[str, dict[str, Any]] = {}
        self.playbook = ""
        # When each task that runs now began, by host and task.
        self.began: dict[tuple[str, str], float] = {}
        self._complained = False

    def complain(self, text: str) -> None:
        """Say once that the report is incomplete."""
        if not self._complained:
            self._complained = True
            self._display.warning(f"aerie_report: the report of this run is incomplete: {text}")

    def host(self, result: Any) -> dict[str, Any]:
        """The record of the host of a result."""
        return self.hosts.setdefault(result._host.get_name(), aerie_report.new_host())

    def collect(self, result: Any) -> None:
        """Take in the sections of one result, and of its items when the task has a loop."""
        host = self.host(result)
        values = result._result
        found = [
            item["aerie"]
            for item in [values, *(values.get("results") or [])]
            if isinstance(item, dict) and item.get("aerie")
        ]
        brought: list[Any] = []
        for one in found:
            aerie_report.add_sections(host, one)
            brought += one if isinstance(one, list) else [one]
        began = self.began.pop(self.key(result._host, result._task), None)
        if began is not None:
            seconds = time.monotonic() - began
            aerie_report.add_task(host, result._task.get_name().strip(), seconds, bool(values.get("changed")), brought)

    @guarded
    def v2_playbook_on_start(self, playbook: Any) -> None:
        self.playbook = str(getattr(playbook, "_file_name", ""))

    @staticmethod
    def key(host: Any, task: Any) -> tuple[str, str]:
        """What a task on a host is known by while it runs."""
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
            host = self.hosts.setdefault(name, aerie_report.new_host())
            host["changed"] = summary["changed"]
            if not summary["failures"] and not summary["unreachable"]:
                # What a rescue mended is no failure of the run.
                host["failures"] = []
        # A host that only lent its name to a task on the controller has nothing to report.
        hosts = aerie_report.asked_for({name: host for name, host in self.hosts.items() if name in stats.processed})
        run = self.get_option("run") or aerie_report.run_name(self.started, os.getpid())
        report = aerie_report.build(hosts, run, self.started, time.time(), command_of(self.playbook))
        try:
            written = aerie_report.write(report, self.reports())
            path: object = written
            trouble = pages.try_write(report, written.parent)
            if trouble:
                self._display.warning(f"aerie_report: {trouble}")
        except OSError as error:
            path = f"not written: {error}"
        if not self.get_option("silent"):
            self._display.display("")
            colour = {"pass": "green", "fail": "red"}.get(report["verdict"], "yellow")
            for line in aerie_report.render(report, path):
                self._display.display(line, color=colour)
        asked = any(aerie_report.USAGE_SECTION in host["sections"] for host in self.hosts.values())
        if asked and report["verdict"] != aerie_report.PASS and stats_are_good(stats):
            # Ansible takes tasks that all went well for a success, also when none of them checked anything.
            raise SystemExit(aerie_report.EXIT_CODES[report["verdict"]])

    def reports(self) -> Path:
        """Folder of the reports: as configured, else under $AERIE_VAR, else under var/ of the checkout."""
        chosen = self.get_option("reports")
        return Path(chosen) if chosen else Path(os.environ.get("AERIE_VAR") or aerie_paths.CHECKOUT / "var") / "reports"


def stats_are_good(stats: Any) -> bool:
    """Whether Ansible itself would end with 0."""
    return not any(stats.failures.values()) and not any(stats.dark.values())


def failure_text(result: dict[str, Any]) -> str:
    """Why a task failed, with the end of what a command said."""
    text = str(result.get("msg") or "failed")
    for key in ("stderr", "module_stderr", "module_stdout"):
        tail = str(result.get(key) or "").strip().splitlines()[-5:]
        if tail:
            return text + "\n" + "\n".join(tail)
    return text


def command_of(playbook: str) -> dict[str, Any]:
    """What was asked for. Values of extra variables stay out: they may be secrets."""
    arguments = context.CLIARGS
    wanted = ("tags", "skip_tags", "subset", "inventory", "check", "diff")
    return {
        "program": Path(sys.argv[0]).name,
        "playbook": playbook,
        **{key: list(v) if isinstance(v := arguments.get(key), (list, tuple)) else v for key in wanted},
    }

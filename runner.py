#!/usr/bin/env python3
"""Run the playbooks with live progress; the exit code tells the verdict: 0 pass, 1 fail, 2 could not run."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHECKOUT = Path(__file__).resolve().parent
# Characters of a malformed value that are repeated.
SHOWN = 24
VENV_PYTHON = CHECKOUT / ".venv" / "bin" / "python"


def complain(text: str) -> NoReturn:
    """End as `could not run`, with the reason."""
    print(f"runner.py: {text}", file=sys.stderr)
    raise SystemExit(2)


try:
    import ansible_runner
    import yaml
    from rich.console import Console
except ImportError as error:
    if VENV_PYTHON.exists() and Path(sys.prefix) != CHECKOUT / ".venv":
        os.execv(VENV_PYTHON, [str(VENV_PYTHON), str(CHECKOUT / "runner.py"), *sys.argv[1:]])  # noqa: S606
    complain(f"{error}; run `make .venv` in {CHECKOUT} first")

import aerie_paths  # noqa: E402, F401  (needs Ansible, whose absence is handled above)

from ansible.module_utils.aerie.shared.progress import progress_line  # noqa: E402  (importable from here on)
from reporting import pages  # noqa: E402  (imports module_utils, which is importable from here on)
from reporting import verdict as aerie_report  # noqa: E402  (the same)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; argparse exits 2 on what it does not know."""
    parser = argparse.ArgumentParser(prog="runner.py", description=__doc__)
    parser.add_argument("-t", "--tags", action="append", default=[], help="only these parts, for example verify")
    parser.add_argument("--skip-tags", action="append", default=[], help="leave these parts out")
    parser.add_argument(
        "-i", "--inventory", action="append", default=[], help="inventory (default: inventory/local); may be repeated"
    )
    parser.add_argument("-l", "--limit", help="only these hosts of the inventory")
    parser.add_argument("-C", "--check", action="store_true", help="say what would change, change nothing")
    parser.add_argument("-D", "--diff", action="store_true", help="show differences")
    parser.add_argument("-e", "--extra-vars", action="append", default=[], help="key=value, JSON, or @file")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="show Ansible's own output; repeat for more")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, progress on stderr")
    parser.add_argument("--playbook", default=str(CHECKOUT / "site.yml"), help="another playbook than site.yml")
    return parser.parse_args(arguments)


def existing(path: str, what: str) -> str:
    """The absolute form of a path, which must exist."""
    absolute = Path(path).expanduser().absolute()
    if not absolute.exists():
        complain(f"{what} {absolute} does not exist")
    return str(absolute)


def refuse_malformed(value: str) -> None:
    """End on a value of `-e` that Ansible would take for nothing, or blame on the inventory."""
    # The beginning names it; the rest may be a password.
    shown = value if len(value) <= SHOWN else f"{value[:SHOWN]}..."
    if value.startswith("{"):
        try:
            yaml.safe_load(value)
        except yaml.YAMLError:
            complain(f"could not run: -e {shown!r} is neither JSON nor YAML")
    elif not value.startswith("@") and "=" not in value:
        complain(f"-e {shown!r}: wanted key=value, JSON, or @file")


def extra_variables(values: Sequence[str]) -> list[str]:
    """Arguments for `-e`; a file is named absolutely, because Ansible runs in another folder."""
    for value in values:
        refuse_malformed(value)
    named = ("@" + existing(value[1:], "variables file") if value.startswith("@") else value for value in values)
    return [part for value in named for part in ("-e", value)]


def ansible_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """What ansible_runner.run takes, from the command line."""
    inventories = options.inventory or [str(CHECKOUT / "inventory" / "local")]
    command = extra_variables(options.extra_vars)
    command += ["--check"] if options.check else []
    command += ["--diff"] if options.diff else []
    arguments: dict[str, Any] = {
        "playbook": existing(options.playbook, "playbook"),
        # A name with a comma is a list of hosts. Given as a list since a lone relative string would be taken for text.
        "inventory": [name if "," in name else existing(name, "inventory") for name in inventories],
        "cmdline": shlex.join(command) or None,
        "tags": ",".join(options.tags) or None,
        "skip_tags": ",".join(options.skip_tags) or None,
        "limit": options.limit,
        "verbosity": options.verbose or None,
    }
    return {key: value for key, value in arguments.items() if value is not None}


def environment(run: str, reports: Path) -> dict[str, str]:
    """Environment of Ansible. ansible-runner sets some of these itself, which would undo ansible.cfg."""
    plugins = [str(CHECKOUT / "callback_plugins"), os.environ.get("ANSIBLE_CALLBACK_PLUGINS", "")]
    return {
        "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
        "ANSIBLE_CALLBACK_PLUGINS": ":".join(filter(None, plugins)),
        # ansible-runner turns host key checking off unless told.
        "ANSIBLE_HOST_KEY_CHECKING": os.environ.get("ANSIBLE_HOST_KEY_CHECKING", "True"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "AERIE_RUN": run,
        "AERIE_REPORTS": str(reports),
        "AERIE_REPORT_SILENT": "true",
        # ansible-runner gives Ansible a terminal of its own, whatever ours is.
        "ANSIBLE_NOCOLOR": "true",
    }


class Progress:
    """One line per role and task, as it happens; on a terminal the running task stands in a status line."""

    def __init__(self, console: Console, verbose: bool) -> None:
        self.console = console
        self.verbose = verbose
        self.status = console.status("starting") if console.is_terminal and not verbose else None
        self.began: dict[str, float] = {}
        self.said: list[str] = []

    def line(self, text: str, style: str = "") -> None:
        """Print one line as it is: no markup, no wrapping."""
        self.console.print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)

    def event(self, event: dict[str, Any]) -> bool:
        """Handle one event of ansible-runner."""
        kind, data = event.get("event", ""), event.get("event_data", {})
        text = event.get("stdout", "")
        if text:
            self.said = [*self.said, text][-40:]
            if self.verbose:
                self.line(text)
        if kind in ("playbook_on_task_start", "playbook_on_handler_task_start"):
            self.began[data.get("task_uuid", "")] = time.monotonic()
            if self.status:
                self.status.update(self.title(data))
        elif kind == "runner_retry":
            progress = (data.get("res") or {}).get("progress")
            if isinstance(progress, dict):
                text = f"{data.get('host')}: {progress_line(progress)}"
                # Lines for logs; on a terminal one line that changes.
                if self.status:
                    self.status.update(text)
                else:
                    self.line(f"  ...      {text}", "cyan")
        elif not self.verbose:
            if kind == "runner_on_file_diff" and text:  # comes with --diff alone
                self.line(text)
            self.outcome(kind, data)
        return False

    def outcome(self, kind: str, data: dict[str, Any]) -> None:
        """The line of a task that ended."""
        result = data.get("res") or {}
        if kind == "runner_on_ok":
            if str(data.get("task")).startswith("Validating arguments"):
                return  # Ansible's own; worth a line only when it fails
            word, style = ("changed", "yellow") if result.get("changed") else ("ok", "green")
        elif kind == "runner_on_failed":
            word, style = ("ignored", "yellow") if data.get("ignore_errors") else ("FAILED", "bold red")
        elif kind == "runner_on_unreachable":
            word, style = "UNREACHABLE", "bold red"
        else:
            return
        took = time.monotonic() - self.began.get(data.get("task_uuid", ""), time.monotonic())
        self.line(f"  {word:<8} {data.get('host')}: {self.title(data)} ({took:.1f} s)", style)

    def errors(self) -> str:
        """The last that Ansible said."""
        return "\n".join(self.said).strip() or "Ansible ended without a result"

    @staticmethod
    def title(data: dict[str, Any]) -> str:
        """`role : task`."""
        parts = (str(data.get("role") or "").strip(), str(data.get("task") or "").strip())
        return " : ".join(part for part in parts if part)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Let a polite kill unwind like Ctrl-C, so that the private folder goes."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def play(arguments: dict[str, Any], run: str, reports: Path, progress: Progress) -> tuple[int, str]:
    """Run Ansible in a throw-away folder; its return code and status. What it reads or keeps never outlives the run."""
    with terminable(), tempfile.TemporaryDirectory(prefix="aerie-runner-") as private:
        (Path(private) / "project").mkdir()
        with progress.status or contextlib.nullcontext():
            done = ansible_runner.run(
                private_data_dir=private,
                envvars=environment(run, reports),
                event_handler=progress.event,
                quiet=True,
                settings={"suppress_env_files": True},
                **arguments,
            )
        return int(done.rc if done.rc is not None else 2), str(done.status)


def unfinished(run: str, started: float, reason: str) -> dict[str, Any]:
    """The report of a run that Ansible ended without one."""
    return {**aerie_report.build({}, run, started, time.time(), {"program": "runner.py"}), "error": reason}


def exit_code(rc: int, verdict: str) -> int:
    """Ours, from Ansible's return code and the verdict of the report: never better than either."""
    code = aerie_report.EXIT_CODES[verdict]
    return code if code or rc == 0 else 1


def main(argv: Sequence[str]) -> int:
    """Command line."""
    options = parse(argv)
    arguments = ansible_arguments(options)
    console = Console(stderr=options.json)
    started = time.time()
    run = aerie_report.run_name(started, os.getpid())
    reports = Path(os.environ.get("AERIE_VAR") or CHECKOUT / "var").absolute() / "reports"
    try:
        (reports / run).mkdir(parents=True)
    except OSError as error:
        complain(f"cannot write reports: {error}; name a folder that can be written to in AERIE_VAR")
    progress = Progress(console, bool(options.verbose))
    try:
        rc, status = play(arguments, run, reports, progress)
    except KeyboardInterrupt:
        rc, status = 254, "canceled"
    path = reports / run / "report.json"
    if status == "canceled" or not path.is_file():
        # Ansible stops before its last callback when it finds no host, cannot read a playbook, or is interrupted.
        report = unfinished(run, started, "interrupted" if status == "canceled" else progress.errors())
        aerie_report.write(report, reports)
        if trouble := pages.try_write(report, path.parent):
            progress.line(trouble)
    report = json.loads(path.read_text())
    if options.json:
        print(json.dumps(report, indent=1))
    style = {"pass": "bold green", "fail": "bold red"}.get(report["verdict"], "bold yellow")
    for number, text in enumerate(aerie_report.render(report, path)):
        progress.line(text, style if number == 0 else "")
    return exit_code(rc, report["verdict"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

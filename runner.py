#!/usr/bin/env python3
"""Run the playbooks and show progress; the exit code is the verdict: 0 pass, 1 fail, 2 could not run."""

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
# How many characters of a malformed value a message shows.
SHOWN = 24
VENV_PYTHON = CHECKOUT / ".venv" / "bin" / "python"


def complain(text: str) -> NoReturn:
    """Print the reason and end with 2, "could not run"."""
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
from reporting import folder, pages, terminal, verdict  # noqa: E402  (the same)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; argparse exits with 2 on an unknown option."""
    parser = argparse.ArgumentParser(prog="runner.py", description=__doc__)
    parser.add_argument("-t", "--tags", action="append", default=[], help="run only these stages, for example verify")
    parser.add_argument("--skip-tags", action="append", default=[], help="leave these stages out")
    parser.add_argument(
        "-i", "--inventory", action="append", default=[], help="inventory; may be repeated (default: inventory/local)"
    )
    parser.add_argument("-l", "--limit", help="run only on these hosts of the inventory")
    parser.add_argument("-C", "--check", action="store_true", help="show what would change, and change nothing")
    parser.add_argument("-D", "--diff", action="store_true", help="show the differences of changed files")
    parser.add_argument("-e", "--extra-vars", action="append", default=[], help="variables: key=value, JSON, or @file")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="show Ansible's output; repeat for more")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, and progress on stderr")
    parser.add_argument("--playbook", default=str(CHECKOUT / "site.yml"), help="run this playbook (default: site.yml)")
    return parser.parse_args(arguments)


def existing(path: str, what: str) -> str:
    """The absolute form of a path, which must exist."""
    absolute = Path(path).expanduser().absolute()
    if not absolute.exists():
        complain(f"{what} {absolute} does not exist")
    return str(absolute)


def refuse_malformed(value: str) -> None:
    """End when a value of `-e` is malformed: Ansible would ignore it, or report an error of the inventory."""
    # The beginning identifies the value; the rest may be a password.
    shown = value if len(value) <= SHOWN else f"{value[:SHOWN]}..."
    if value.startswith("{"):
        try:
            yaml.safe_load(value)
        except yaml.YAMLError:
            complain(f"could not run: -e {shown!r} is neither JSON nor YAML")
    elif not value.startswith("@") and "=" not in value:
        complain(f"-e {shown!r}: wanted key=value, JSON, or @file")


def extra_variables(values: Sequence[str]) -> list[str]:
    """Arguments for `-e`, with absolute paths of files, because Ansible runs in another folder."""
    for value in values:
        refuse_malformed(value)
    named = ("@" + existing(value[1:], "variables file") if value.startswith("@") else value for value in values)
    return [part for value in named for part in ("-e", value)]


def ansible_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of ansible_runner.run, from the command line."""
    inventories = options.inventory or [str(CHECKOUT / "inventory" / "local")]
    command = extra_variables(options.extra_vars)
    command += ["--check"] if options.check else []
    command += ["--diff"] if options.diff else []
    arguments: dict[str, Any] = {
        "playbook": existing(options.playbook, "playbook"),
        # A name with a comma is a list of hosts. A list, because ansible-runner takes a single relative path for text.
        "inventory": [name if "," in name else existing(name, "inventory") for name in inventories],
        "cmdline": shlex.join(command) or None,
        "tags": ",".join(options.tags) or None,
        "skip_tags": ",".join(options.skip_tags) or None,
        "limit": options.limit,
        "verbosity": options.verbose or None,
    }
    return {key: value for key, value in arguments.items() if value is not None}


def variables(run: str, reports: Path) -> dict[str, str]:
    """The variables of Ansible's process. ansible-runner sets some of them itself, and would override ansible.cfg."""
    plugins = [str(CHECKOUT / "callback_plugins"), os.environ.get("ANSIBLE_CALLBACK_PLUGINS", "")]
    return {
        "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
        "ANSIBLE_CALLBACK_PLUGINS": ":".join(filter(None, plugins)),
        # ansible-runner turns host key checking off when this is not set.
        "ANSIBLE_HOST_KEY_CHECKING": os.environ.get("ANSIBLE_HOST_KEY_CHECKING", "True"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "AERIE_RUN": run,
        "AERIE_REPORTS": str(reports),
        "AERIE_REPORT_SILENT": "true",
        # ansible-runner gives Ansible a terminal even when this program has none.
        "ANSIBLE_NOCOLOR": "true",
    }


class Progress:
    """Prints one line for each task that ends; on a terminal a status line shows the running task."""

    def __init__(self, console: Console, verbose: bool) -> None:
        self.console = console
        self.verbose = verbose
        self.status = console.status("starting") if console.is_terminal and not verbose else None
        self.began: dict[str, float] = {}
        self.recent: list[str] = []

    def line(self, text: str, style: str = "") -> None:
        """Print one line without markup and wrapping."""
        self.console.print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)

    def event(self, event: dict[str, Any]) -> bool:
        """Handle one event of ansible-runner."""
        kind, data = event.get("event", ""), event.get("event_data", {})
        text = event.get("stdout", "")
        if text:
            self.recent = [*self.recent, text][-40:]
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
                # On a terminal the status line changes; a log gets a line each time.
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
        """Print the line of a task that ended."""
        result = data.get("res") or {}
        if kind == "runner_on_ok":
            if str(data.get("task")).startswith("Validating arguments"):
                return  # a task of Ansible itself: worth a line only when it fails
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
        """The last lines of Ansible's output."""
        return "\n".join(self.recent).strip() or "Ansible ended without a result"

    @staticmethod
    def title(data: dict[str, Any]) -> str:
        """`role : task`."""
        parts = (str(data.get("role") or "").strip(), str(data.get("task") or "").strip())
        return " : ".join(part for part in parts if part)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that the private folder is removed."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def play(arguments: dict[str, Any], run: str, reports: Path, progress: Progress) -> tuple[int, str]:
    """Run Ansible in a temporary folder, so that nothing is kept after the run; return its return code and status."""
    with terminable(), tempfile.TemporaryDirectory(prefix="aerie-runner-") as private:
        (Path(private) / "project").mkdir()
        with progress.status or contextlib.nullcontext():
            done = ansible_runner.run(
                private_data_dir=private,
                envvars=variables(run, reports),
                event_handler=progress.event,
                quiet=True,
                settings={"suppress_env_files": True},
                **arguments,
            )
        return int(done.rc if done.rc is not None else 2), str(done.status)


def unfinished(run: str, started: float, reason: str) -> dict[str, Any]:
    """The report of a run for which Ansible wrote none."""
    return {**verdict.build({}, run, started, time.time(), {"program": "runner.py"}), "error": reason}


def exit_code(rc: int, judgement: str) -> int:
    """The exit code of this program: the worse of Ansible's return code and the report's verdict."""
    code = verdict.EXIT_CODES[judgement]
    return code if code or rc == 0 else 1


def main(argv: Sequence[str]) -> int:
    """Command line."""
    options = parse(argv)
    arguments = ansible_arguments(options)
    console = Console(stderr=options.json)
    started = time.time()
    run = folder.run_name(started, os.getpid())
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
        # Ansible does not reach its last callback when it finds no host, cannot read a playbook, or is interrupted.
        report = unfinished(run, started, "interrupted" if status == "canceled" else progress.errors())
        folder.write(report, reports)
        if trouble := pages.try_write(report, path.parent):
            progress.line(trouble)
    report = json.loads(path.read_text())
    if options.json:
        print(json.dumps(report, indent=1))
    style = {"pass": "bold green", "fail": "bold red"}.get(report["verdict"], "bold yellow")
    for number, text in enumerate(terminal.render(report, path)):
        progress.line(text, style if number == 0 else "")
    return exit_code(rc, report["verdict"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

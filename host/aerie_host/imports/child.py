"""The clean interpreter of stage ``imports``: common imports once, then a forked child for each symbol and check."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from importlib import import_module, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host.imports import compatibility, forks

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerie_host.shared.checks import Check

# What nearly every symbol needs and what takes the time; imported once, before the forks.
COMMON = (
    "torch",
    "transformers",
    "vllm.config",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.structured_output",
    "vllm.transformers_utils.config",
    "datasets",
    "speculators",
)
FAMILY = "torch, torchvision, torchaudio, triton and vLLM want each other's versions"


def symbol(text: str) -> Callable[[], str]:
    """A task that imports ``module:name`` and gives back what it is."""

    def task() -> str:
        module, _, names = text.partition(":")
        found: Any = import_module(module)
        for name in names.split(".") if names else []:
            if not hasattr(found, name):
                raise ImportError(f"{getattr(found, '__name__', module)} has no {name} ({_place(found)})")
            found = getattr(found, name)
        kind = type(found).__name__
        return f"{kind} {getattr(found, '__module__', '')}".strip()

    return task


def _place(module: Any) -> str:
    return str(getattr(module, "__file__", "no file"))


def check_tasks(device: str, vllm_distribution: str) -> list[forks.Task]:
    """The checks of how the compiled parts fit."""
    import torch

    found = util.find_spec("vllm")
    package = Path(found.origin).parent if found and found.origin else Path("missing")
    checks: list[tuple[str, Callable[..., Check], tuple[Any, ...]]] = [
        (FAMILY, compatibility.family, (vllm_distribution,)),
        ("torchvision operators", compatibility.vision_operator, ()),
        ("torchaudio loads", compatibility.loads, ("torchaudio",)),
        ("triton loads", compatibility.loads, ("triton",)),
        ("flashinfer companions", compatibility.flashinfer, ()),
        ("compiled parts of vLLM load", compatibility.compiled, (package,)),
        ("CUDA of vLLM's binaries", compatibility.cuda_major, (package, torch.version.cuda, device)),
        ("architectures of torch", compatibility.architectures, (device,)),
        ("CUDA compiler", compatibility.compiler, (device,)),
        ("vLLM operator", compatibility.operator, (device,)),
    ]
    return [(name, functools.partial(_as_data, check, name, *arguments)) for name, check, arguments in checks]


def _as_data(check: Callable[..., Check], *arguments: Any) -> dict[str, Any]:
    return check(*arguments).as_data()


def main() -> None:
    """Read the request from standard input, write one JSON document to the file descriptor that it names."""
    request = json.loads(sys.stdin.read())
    document: dict[str, Any] = {"common": [], "symbols": [], "checks": [], "warnings": []}
    started = time.monotonic()
    with forks.catching() as caught:
        for module in COMMON:
            document["common"].append(_common(module))
    document["warnings"] += [{**warning, "while": "common imports"} for warning in caught]
    document["seconds_common"] = round(time.monotonic() - started, 3)
    symbols: list[forks.Task] = [(text, symbol(text)) for text in request["symbols"]]
    tasks = symbols + _checks(request, document)
    width = max(1, min(4, len(os.sched_getaffinity(0))))
    for answer in forks.run(tasks, width, request["timeout"]):
        kind = "symbols" if any(answer.name == name for name, _ in symbols) else "checks"
        document["warnings"] += [{**warning, "while": answer.name} for warning in answer.warnings]
        entry = {"name": answer.name, "value": answer.value, "error": answer.error}
        document[kind].append({**entry, "file": answer.file, "line": answer.line, "seconds": round(answer.seconds, 3)})
    document["seconds"] = round(time.monotonic() - started, 3)
    with os.fdopen(request["answer"], "w", encoding="utf-8") as pipe:
        json.dump(document, pipe)
    # Libraries leave threads and hooks behind that have nothing to do any more.
    os._exit(0)


def _checks(request: dict[str, Any], document: dict[str, Any]) -> list[forks.Task]:
    if any(answer["error"] for answer in document["common"] if answer["name"] == "torch"):
        return []  # without torch every check would say the same
    return check_tasks(request["device"], request["vllm_distribution"])


def _common(module: str) -> dict[str, Any]:
    started = time.monotonic()
    entry: dict[str, Any] = {"name": module, "error": "", "file": "", "line": 0}
    try:
        import_module(module)
    except BaseException as error:  # noqa: BLE001 - the symbols that need it fail next, each by its own name
        entry.update(forks.describe(error))
    return {**entry, "seconds": round(time.monotonic() - started, 3)}

"""Command ``imports``: everything that extraction and training use can be imported, and the compiled parts fit."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import aerie_host
from aerie_host.report.outcome import Outcome
from aerie_host.shared.checks import Check, Checks
from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from aerie_host.spec import Spec

# What our own programs and speculators' training import; the import probes of the patches come on top.
SYMBOLS = (
    "speculators.data_generation.vllm_hidden_states_generator:VllmHiddenStatesGenerator",
    "speculators.train.data:Eagle3SampleFileDataset",
    "speculators.train.data:create_collate_fn",
    "speculators.train.data:standardize_data_v1",
    "speculators.train.data:split_files",
    "speculators.train.noise_transforms:AddUniformNoise",
    "speculators.train.noise_transforms:TransformTensors",
    "speculators.train.trainer:Trainer",
    "speculators.train.vocab_mapping:build_vocab_mappings_from_distribution",
    "speculators.train.distributed_batch_sampler:MultipackDistributedBatchSamplerV2",
    "speculators:SpeculatorsConfig",
    "speculators:VerifierConfig",
    "speculators.proposals.greedy:GreedyTokenProposalConfig",
    "speculators.models.eagle3:Eagle3DraftModel",
    "speculators.models.eagle3:Eagle3SpeculatorConfig",
    "transformers:AutoModelForCausalLM",
    "transformers:AutoTokenizer",
    "safetensors.torch:save_file",
)
GENERATOR = "speculators.data_generation.vllm_hidden_states_generator"
BOOT = "import sys; sys.path.append(sys.argv[1]); from aerie_host.imports.child import main; main()"
LOG_CHARACTERS = 4000


def run(spec: Spec, check: bool) -> Outcome:  # noqa: ARG001 - it only reads, so both modes are the same
    """Import in one clean interpreter and report symbol by symbol.

    Specification: ``device`` (cpu, cuda), ``vllm_distribution``, ``symbols`` (``module:name``, added to ours),
    ``timeout`` (seconds for one symbol), ``measure`` (compare the cost with one bare import of the generator).
    """
    device = spec.choice("device", ("cpu", "cuda"))
    distribution = spec.text("vllm_distribution", "vllm")
    extra = spec.mapping("symbols", {})
    timeout = spec.number("timeout", 300)
    measure = spec.flag("measure", False)
    spec.finish()
    symbols = list(dict.fromkeys([*SYMBOLS, *sorted(extra)]))
    request = {"symbols": symbols, "device": device, "vllm_distribution": distribution, "timeout": timeout}
    before = cpu_seconds()
    document, log = ask(request, timeout)
    spent = cpu_seconds() - before
    outcome = Outcome("imports", Checks(), {}, message=f"{len(symbols)} symbols imported")
    judge(document, extra, outcome.checks)
    # Warnings and logs are kept for the reader: an import that works may still say what is about to break.
    outcome.data = {
        "seconds": document["seconds"],
        "seconds_common": document["seconds_common"],
        "warnings": document["warnings"],
        "log": log[-LOG_CHARACTERS:],
    }
    if measure:
        before = cpu_seconds()
        outcome.data["bare_import_seconds"] = bare_import()
        # Of processor time, not of the clock: what else runs on the machine must not decide.
        outcome.data["ratio"] = round(spent / (cpu_seconds() - before), 2)
    return outcome


def cpu_seconds() -> float:
    """Processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def clean_environment() -> dict[str, str]:
    """The environment without what would steer Python's own search for modules."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def ask(request: dict[str, Any], timeout: float) -> tuple[dict[str, Any], str]:
    """Run the child with ``request``; return its document and its output. ``Refusal`` when it gives no document."""
    root = str(Path(str(aerie_host.__file__)).parent.parent)
    read, write = os.pipe()
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-X", "faulthandler", "-c", BOOT, root],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[write],
                env=clean_environment(),
                cwd="/",
            )
        finally:
            os.close(write)
        with process, os.fdopen(read, "rb") as pipe:
            text = json.dumps({**request, "answer": write}).encode()
            assert process.stdin is not None  # noqa: S101 - for the type checker
            process.stdin.write(text)
            process.stdin.close()
            answer = _read_all(pipe, process, timeout * (len(request["symbols"]) + 10))
            code = process.wait()
        written = _text(log)
    if not answer:
        found = f"it ended with code {code} and gave no result; it wrote: {written[-2000:]}"
        raise Refusal("clean interpreter", found, "a result")
    document: dict[str, Any] = json.loads(answer)
    return document, written


def _read_all(pipe: IO[bytes], process: subprocess.Popen[bytes], limit: float) -> bytes:
    import threading

    watchdog = threading.Timer(limit, process.kill)
    watchdog.start()
    try:
        return pipe.read()
    finally:
        watchdog.cancel()


def _text(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode("utf-8", errors="replace")


def bare_import() -> float:
    """Seconds that one interpreter takes to import the generator and nothing else."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import {GENERATOR}"],
        capture_output=True, env=clean_environment(), cwd="/", check=False,
    )  # fmt: skip
    if done.returncode:
        raise Refusal("bare import", f"{GENERATOR} failed: {done.stderr.decode(errors='replace')[-2000:]}")
    return round(time.monotonic() - started, 3)


def judge(document: dict[str, Any], owners: dict[str, Any], checks: Checks) -> None:
    """Turn the child's document into checks; ``owners`` names the patch that promises a symbol."""
    # Misfits first: a broken torchvision fails nearly every import, and is what has to be mended.
    for answer in document["checks"]:
        if answer["error"]:
            _add_failure(checks, str(answer["name"]), answer, "a check that ends", _remedy(answer["name"]))
        else:
            checks.append(Check(**{**answer["value"], "seconds": answer["seconds"]}))
    for answer in document["common"]:
        if answer["error"]:
            _add_failure(checks, f"import {answer['name']}", answer, "an import", _remedy(answer["name"]))
    for answer in document["symbols"]:
        symbol = str(answer["name"])
        if answer["error"]:
            owner = owners.get(symbol)
            remedy = f"patch {owner} promises it: apply the series (tag patch)" if owner else _remedy(symbol)
            _add_failure(checks, f"import {symbol}", answer, "a name that can be imported", remedy)
        else:
            found, seconds = answer["value"], answer["seconds"]
            checks.add(f"import {symbol}", "pass", found, "a name that can be imported", seconds=seconds)


def _add_failure(checks: Checks, name: str, answer: dict[str, Any], wanted: str, remedy: str) -> None:
    """Add the failed check for an answer that is an error, with its place in the source."""
    file = str(answer.get("file") or "")
    if "site-packages/" in file:
        file = file.split("site-packages/", 1)[1]
    line = int(answer["line"]) if answer.get("line") else None
    checks.add(name, "fail", answer["error"], wanted, remedy, file or None, line, answer.get("seconds"))


def _remedy(name: str) -> str:
    if name.startswith("speculators.data_generation"):
        return "apply the patch series (tag patch); if it is applied, the log in the report shows the whole trace"
    return "make the environment as the lock says (tag provision); the log in the report shows the whole trace"

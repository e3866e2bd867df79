"""Run one architecture's battery through the generator that an extraction builds, in a process of its own.

An engine that has ended keeps some memory, so the next architecture gets a fresh process.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from aerie_host.checkpoint.reference_forward import Forward, ReferenceModel, Rounding
from aerie_host.extract.generator import EngineLimits, make_generator
from aerie_host.shared.model_config import read_facts
from aerie_host.truth.cases import Case, cases, layer_ids
from aerie_host.truth.checkpoints import VOCABULARY, build, build_twin
from aerie_host.truth.compare import Comparison, compare, separation
from aerie_host.truth.files import through_files
from aerie_host.truth.names import ASKED_FOR, CALLS, NAMES, SMALL

MAX_LENGTH = 384
BLOCK = 16
# The step is that of an extraction; fewer sequences, so that the case with more sequences than places stays small.
LIMITS = EngineLimits(MAX_LENGTH, step=8192, sequences=128)
# A step and a cache so small that prefills are split and pre-empted: several are under way at once, and each waits for
# blocks that the others hold.
SMALL_LIMITS = EngineLimits(MAX_LENGTH, step=192, sequences=128, piece=64, cache=512)


class Captured(NamedTuple):
    """A case with its result: for each sequence one tensor per layer, and what else was wrong."""

    case: Case
    states: list[list[torch.Tensor]]
    findings: list[str]


class BrokenOffError(Exception):
    """Ends a call half-way, as an error or a signal would."""


class Watch:
    """Wraps the scheduler: counts its steps, and breaks a call off on request."""

    def __init__(self, generator: Any) -> None:
        self.counts = {"steps": 0, "split": 0, "preempted": 0}
        self._scheduler = generator.scheduler
        self._schedule = generator.scheduler.schedule
        self._break_in = 0
        generator.scheduler.schedule = self._watched

    def _watched(self) -> Any:
        if self._break_in:
            self._break_in -= 1
            if not self._break_in:
                raise BrokenOffError
        output = self._schedule()
        # A run that split nothing cannot claim to have tested it.
        self.counts["steps"] += 1
        for request_id, tokens in output.num_scheduled_tokens.items():
            self.counts["split"] += tokens < self._scheduler.requests[request_id].num_prompt_tokens
        self.counts["preempted"] += len(output.preempted_req_ids or ())
        return output

    def broken_off(self, call: Any) -> list[str]:
        """Make a call that is broken off in its second step; a finding when it has none."""
        self._break_in = 2
        with contextlib.suppress(BrokenOffError):
            call()
        steps_missing, self._break_in = self._break_in, 0
        return ["the call that was to be broken off had no second step"] if steps_missing else []


class Battery:
    """A generator, and the ways to run a case through it."""

    def __init__(self, generator: Any, layers: list[int], folder: Path) -> None:
        self.generator = generator
        self.watch = Watch(generator)
        self._layers = layers
        self._folder = folder

    def capture(self, case: Case, large: list[list[int]]) -> Captured:
        """Run a case; ``large`` takes more than one step and is for calls that are to be broken off."""
        kind, _, after = case.way.partition(" ")
        run_way = {"call": self._call, "alone": self._alone, "files": self._files}[kind]
        broken = self.watch.broken_off(lambda: run_way(large, "broken")) if after else []
        states, findings = run_way(case.sequences, case.key)
        return Captured(case, states, broken + findings)

    def _call(self, sequences: list[list[int]], _name: str) -> tuple[list[list[torch.Tensor]], list[str]]:
        results = self.generator.generate([list(sequence) for sequence in sequences])
        findings = []
        for index, (result, sequence) in enumerate(zip(results, sequences, strict=False)):
            got = result["input_ids"].tolist()
            if got == sequence[: len(got)] != sequence:
                findings.append(f"result {index} holds {len(got)} of {len(sequence)} token ids")
            elif got != sequence:
                findings.append(f"result {index} holds the token ids of another sequence")
        return [result["hidden_states"] for result in results], findings

    def _alone(self, sequences: list[list[int]], name: str) -> tuple[list[list[torch.Tensor]], list[str]]:
        answers = [self._call([sequence], name) for sequence in sequences]
        return [states[0] for states, _ in answers], [finding for _, findings in answers for finding in findings]

    def _files(self, sequences: list[list[int]], name: str) -> tuple[list[list[torch.Tensor]], list[str]]:
        return through_files(self.generator, sequences, self._layers, self._folder / name)

    def refusals(self) -> list[str]:
        """Make calls that must fail and leave the engine fit for the next; a finding for each that does not fail."""
        findings = []
        for name, sequences in (
            ("an empty batch", []),
            ("an empty sequence", [[5, 6], []]),
            ("a token outside the vocabulary", [[5, VOCABULARY]]),
            ("a negative token", [[-1, 5]]),
        ):
            try:
                self.generator.generate(sequences)
            except ValueError:
                continue
            findings.append(f"{name} is accepted")
        return findings


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Build the checkpoint, run the battery, and return findings and figures as plain data.

    Args:
        job: architecture; model, the folder of the target whose twin is run in place of the architecture, or none;
            seed, tensor_parallel_size, small (step and cache), device; and cases: the keys of those to run; when empty,
            of all that are meant for the job.
    """
    started = time.monotonic()
    if job["device"] == "cpu" and job["tensor_parallel_size"] > 1:
        # vLLM wants a memory node for each rank to bind its threads to; a small machine has one.
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    keys = [key for key in job["cases"] or [*NAMES, *CALLS] if key in SMALL or not job["small"]]
    with tempfile.TemporaryDirectory(prefix="aerie-truth-") as name:
        folder = Path(name)
        target = job.get("model")
        checkpoint, decoder = build_twin(Path(target), folder) if target else build(job["architecture"], folder)
        layers = layer_ids(job["seed"], read_facts(decoder).num_layers)
        generator = make_generator(
            checkpoint,
            layers,
            SMALL_LIMITS if job["small"] else LIMITS,
            gpu_memory_utilization=0.5,
            tensor_parallel_size=job["tensor_parallel_size"],
        )
        battery = Battery(generator, layers, folder)
        ready = time.monotonic()
        report: dict[str, Any] = {key: job[key] for key in ("architecture", "seed", "tensor_parallel_size")}
        report |= {"small_cache": job["small"], "layer_ids": layers, "max_length": MAX_LENGTH}
        captured = _capture_all(battery, job["seed"], keys, report)
        captured_at = time.monotonic()
        report["batches"] = _compare_all(captured, decoder, job["device"], layers, report)
        report["scheduler"] = battery.watch.counts
        report["seconds"] = {
            "start": ready - started,
            "capture": captured_at - ready,
            "reference": time.monotonic() - captured_at,
        }
        return report


def _capture_all(battery: Battery, seed: int, keys: list[str], report: dict[str, Any]) -> list[Captured]:
    scheduler = battery.generator.vllm_config.scheduler_config
    plan = cases(seed, MAX_LENGTH, scheduler.max_num_seqs, BLOCK, min(scheduler.max_num_batched_tokens, 8192))
    large = next(case.sequences for case in plan if case.key == "budget")
    captured = []
    for case in plan:
        if case.key == "failed" and "bad_calls" in keys:
            print(f"{ASKED_FOR}calls that must be refused", flush=True)
            report["refusals"] = battery.refusals()
        if case.key in keys:
            print(f"{ASKED_FOR}{case.name}", flush=True)
            captured.append(battery.capture(case, large))
    if "over" in keys:
        print(f"{ASKED_FOR}a sequence over the maximum", flush=True)
        report["truncated_to"] = len(battery.generator.generate([[5] * (MAX_LENGTH + 10)])[0]["input_ids"])
    print(f"{ASKED_FOR}a comparison with Transformers", flush=True)
    return captured


def _compare_all(
    captured: list[Captured], decoder: Path, device: str, layers: list[int], report: dict[str, Any]
) -> list[dict[str, Any]]:
    """Compare the cases with float32 forwards; add bounds, separation and distances to the report."""
    float32 = ReferenceModel(decoder, torch.float32, device, updates=True)
    bfloat16 = ReferenceModel(decoder, torch.bfloat16, device)
    exact: dict[tuple[int, ...], Forward] = {}
    rounding = Rounding()
    for sequence in (sequence for result in captured for sequence in result.case.sequences):
        if tuple(sequence) not in exact:
            exact[tuple(sequence)] = float32.forward(sequence)
            rounding.add(bfloat16.forward(sequence), exact[tuple(sequence)])
    if exact:
        report["bounds"] = [rounding.row_bound(layer) for layer in range(len(rounding.worst))]
        report["separation"] = separation(list(exact.values()))
    batches = []
    worst: dict[int, float] = {}
    for case, states, findings in captured:
        result: Comparison = compare(states, [exact[tuple(sequence)] for sequence in case.sequences], layers, rounding)
        for layer, largest in result.layers.items():
            worst[layer] = max(worst.get(layer, 0.0), largest)
        batches.append(
            {
                "name": case.name,
                "sequences": len(case.sequences),
                "tokens": sum(map(len, case.sequences)),
                "rows": result.rows,
                "largest": result.largest,
                "share_of_bound": result.share,
                "findings": findings + result.findings,
            }
        )
    report["layers"] = [
        {"layer": layer, "worst": largest, "bound": rounding.row_bound(layer)}
        for layer, largest in sorted(worst.items())
    ]
    return batches


def write_report(job: dict[str, Any]) -> None:
    """Run a job and write its report to the file that it names."""
    Path(job["out"]).write_text(json.dumps(run(job)), encoding="utf-8")


if __name__ == "__main__":
    write_report(json.load(sys.stdin))

"""Run one architecture's battery through the real generator; started as a process of its own.

An engine that is done does not give back all it took; the next architecture gets a fresh process.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from aerie_host.reference import Forward, ReferenceModel, Rounding
from aerie_host.truth.cases import Batch, batches
from aerie_host.truth.checkpoints import ARCHITECTURES, LAYERS, VOCABULARY, build
from aerie_host.truth.compare import Comparison, compare, separation
from aerie_host.truth.files import through_files

# Not in order, one twice, the first and the last among them: what a set of layers would lose.
LAYER_IDS = [3, 0, LAYERS - 1, 3]
MAX_LENGTH = 384
SMALL_STEP_TOKENS = 192
SMALL_PIECE_TOKENS = 64
SMALL_CACHE_TOKENS = 512


def _generator(checkpoint: str, tensor_parallel_size: int, small: bool) -> Any:
    from speculators.data_generation import vllm_hidden_states_generator as module

    class Small(module.VllmHiddenStatesGenerator):  # type: ignore[misc]
        """The generator with so small a step and a cache that prefills are split and pre-empted."""

        def _create_vllm_config(self, **kwargs: Any) -> Any:
            config = super()._create_vllm_config(**kwargs)
            config.scheduler_config.max_num_batched_tokens = SMALL_STEP_TOKENS
            # Several prefills under way at once, each waiting for blocks that the others hold.
            config.scheduler_config.long_prefill_token_threshold = SMALL_PIECE_TOKENS
            config.cache_config.num_gpu_blocks_override = SMALL_CACHE_TOKENS // config.cache_config.block_size
            return config

    kind = Small if small else module.VllmHiddenStatesGenerator
    return kind(
        checkpoint,
        layer_ids=LAYER_IDS,
        # one position is kept for the token that a prefill samples
        max_model_len=MAX_LENGTH + 1,
        gpu_memory_utilization=0.5,
        tensor_parallel_size=tensor_parallel_size,
    )


def _watch(generator: Any) -> dict[str, int]:
    """Count what the scheduler does, so that a run that split nothing cannot claim to have tested it."""
    counts = {"steps": 0, "split": 0, "preempted": 0}
    schedule = generator.scheduler.schedule

    def counted() -> Any:
        output = schedule()
        counts["steps"] += 1
        for request_id, tokens in output.num_scheduled_tokens.items():
            counts["split"] += tokens < generator.scheduler.requests[request_id].num_prompt_tokens
        counts["preempted"] += len(output.preempted_req_ids or ())
        return output

    generator.scheduler.schedule = counted
    return counts


def _ask(generator: Any, batch: Batch) -> tuple[list[list[torch.Tensor]], list[str]]:
    results = generator.generate([list(sequence) for sequence in batch.sequences])
    wrong = [
        f"result {index} holds the token ids of another sequence"
        for index, (result, sequence) in enumerate(zip(results, batch.sequences, strict=False))
        if result["input_ids"].tolist() != sequence
    ]
    return [result["hidden_states"] for result in results], wrong


def _refusals(generator: Any) -> list[str]:
    """Calls that must fail, and must leave the engine fit for the next call."""
    findings = []
    for name, sequences in (
        ("an empty batch", []),
        ("an empty sequence", [[5, 6], []]),
        ("a token outside the vocabulary", [[5, VOCABULARY]]),
        ("a negative token", [[-1, 5]]),
    ):
        try:
            generator.generate(sequences)
        except ValueError:
            continue
        findings.append(f"{name} is accepted")
    return findings


def run(architecture: str, seed: int, tensor_parallel_size: int, small: bool, device: str) -> dict[str, Any]:
    """Build the checkpoint, run the battery, and return findings and figures as plain data."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="aerie-truth-") as folder:
        checkpoint, decoder = build(architecture, Path(folder))
        generator = _generator(str(checkpoint), tensor_parallel_size, small)
        counts = _watch(generator)
        budget = generator.vllm_config.scheduler_config.max_num_batched_tokens
        ready = time.monotonic()
        float32 = ReferenceModel(decoder, torch.float32, device)
        bfloat16 = ReferenceModel(decoder, torch.bfloat16, device)
        at_once = generator.vllm_config.scheduler_config.max_num_seqs
        plan = batches(seed, MAX_LENGTH, at_once, 16, min(budget, 8192))
        if small:
            plan = plan[1:2] + plan[4:]
        asked: list[tuple[Batch, list[list[torch.Tensor]], list[str]]] = []
        for batch in plan:
            states, wrong = _ask(generator, batch)
            asked.append((batch, states, wrong))
        streamed = Batch("streamed to files", [sequence for batch in plan for sequence in batch.sequences])
        asked.append((streamed, *through_files(generator, streamed.sequences, LAYER_IDS, Path(folder) / "files")))
        refusals = _refusals(generator)
        again = Batch("after calls that failed", plan[0].sequences)
        asked.append((again, *_ask(generator, again)))
        cut = generator.generate([[5] * (MAX_LENGTH + 10)])[0]
        lone = Batch("one by one", plan[0 if small else 1].sequences[:9])
        alone = [_ask(generator, Batch(lone.name, [sequence])) for sequence in lone.sequences]
        asked.append((lone, [states[0] for states, _ in alone], [finding for _, wrong in alone for finding in wrong]))
        again = Batch("streamed to files again", lone.sequences)
        asked.append((again, *through_files(generator, again.sequences, LAYER_IDS, Path(folder) / "again")))
        captured = time.monotonic()
        exact: dict[tuple[int, ...], Forward] = {}
        rounding = Rounding()
        for sequence in (sequence for batch, _, _ in asked for sequence in batch.sequences):
            if tuple(sequence) not in exact:
                exact[tuple(sequence)] = float32.forward(sequence)
                rounding.add(bfloat16.forward(sequence), exact[tuple(sequence)])
        report: dict[str, Any] = {
            "architecture": architecture,
            "tensor_parallel_size": tensor_parallel_size,
            "small_cache": small,
            "bounds": [rounding.row_bound(layer) for layer in range(LAYERS)],
            "separation": separation(list(exact.values())),
            "refusals": refusals,
            "scheduler": counts,
            "truncated_to": len(cut["input_ids"]),
            "max_length": MAX_LENGTH,
            "batches": [],
            "layers": [],
        }
        worst: dict[int, float] = {}
        for batch, states, wrong in asked:
            wanted = [exact[tuple(sequence)] for sequence in batch.sequences]
            result: Comparison = compare(states, wanted, LAYER_IDS, rounding)
            for layer, largest in result.layers.items():
                worst[layer] = max(worst.get(layer, 0.0), largest)
            report["batches"].append(
                {
                    "name": batch.name,
                    "sequences": len(batch.sequences),
                    "tokens": sum(map(len, batch.sequences)),
                    "rows": result.rows,
                    "largest": result.largest,
                    "share_of_bound": result.share,
                    "findings": wrong + result.findings,
                }
            )
        report["layers"] = [
            {"layer": layer, "worst": largest, "bound": rounding.row_bound(layer)}
            for layer, largest in sorted(worst.items())
        ]
        report["seconds"] = {
            "start": ready - started,
            "capture": captured - ready,
            "reference": time.monotonic() - captured,
        }
        return report


def main() -> None:
    """Read the job from standard input; write the report to the file it names."""
    job = json.load(sys.stdin)
    report = run(job["architecture"], job["seed"], job["tensor_parallel_size"], job["small"], job["device"])
    Path(job["out"]).write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) == 1 and ARCHITECTURES:
        main()

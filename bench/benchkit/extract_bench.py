"""Extraction beside what limits it, in one run on one machine.

    plain     prefill alone, `LLM.generate(max_tokens=1)`: the ceiling
    generate  `VllmHiddenStatesGenerator.generate`, states in this process's memory
    files     what an extraction job does: states in files, hashed, synced, journaled
    write     files of the same sizes written and synced by as many processes: the target folder's ceiling, the mean of
              before and after, for a disk's speed drifts

With --no-model there are files and write alone, with states that are made up: writers beside the folder, without a GPU.
Several values of --lengths, --writers, --target and --step-tokens give a row for each combination. Each engine runs in
a process of its own, so that one has the memory of another. Weights are random where a shape is named: speed does not
depend on them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.benchkit.extract_stages import SECONDS, STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

# What starts a stage in a process of its own.
COMMAND = Path(__file__).resolve().parents[1] / "extract.py"
# hidden size, intermediate size, layers, heads, key/value heads
SHAPES = {
    "tiny": (128, 256, 6, 4, 2),
    "135m": (576, 1536, 30, 9, 3),
    "1.1b": (2048, 5632, 22, 32, 4),
    "7b": (4096, 11008, 32, 32, 32),
}
VOCABULARY = 32000
MOST_BYTES = 32e9  # what a measurement may put on the disk
WITHOUT_MODEL_BYTES = 4e9  # what one does where states are made up


def make_checkpoint(shape: str, folder: Path) -> None:
    """Configuration and tokenizer of a Llama-like model; its weights are made up when it is loaded."""
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    hidden, intermediate, layers, heads, kv_heads = SHAPES[shape]
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
    )
    config.architectures = ["LlamaForCausalLM"]
    config.dtype = "bfloat16"
    config.save_pretrained(folder)
    words = {"<unk>": 0, "<s>": 1, "</s>": 2}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))  # noqa: S106 - a token of text
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)


def run_stage(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Run one stage in a process of its own and return what it found."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
        command = [sys.executable, str(COMMAND), "--stage", name, out.name]
        done = subprocess.run(
            command, input=json.dumps(vars(given)), text=True, stdout=sys.stderr, check=False, timeout=given.timeout
        )
        if done.returncode:
            raise SystemExit(f"stage {name} ended with code {done.returncode}; its log is above")
        found: dict[str, Any] = json.load(out)
        return found


def parser() -> argparse.ArgumentParser:
    """The command line."""
    as_written = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(prog="bench/extract.py", description=__doc__, formatter_class=as_written)
    what = top.add_mutually_exclusive_group(required=True)
    what.add_argument("--shape", choices=SHAPES, help="a Llama-like model of this shape with random weights")
    what.add_argument("--checkpoint", help="a checkpoint's folder")
    top.add_argument(
        "--no-model", action="store_true", help="files and write only: states are made up, no GPU is needed"
    )
    top.add_argument("--target", nargs="+", default=[None], help="folders to write to (default: a temporary one)")
    top.add_argument("--lengths", nargs="+", default=["1000", "mixed"], help="tokens of every sample, or mixed")
    top.add_argument("--max-length", type=int, default=2048, help="tokens of the longest sample")
    top.add_argument("--layers", type=int, nargs="+", help="layers to capture (default: early, middle, late, last)")
    top.add_argument("--step-tokens", type=int, nargs="+", default=[8192], help="tokens in one step of the model")
    top.add_argument(
        "--tokens", type=int, default=0, help=f"tokens to measure with (default: {SECONDS:g} s of prefill)"
    )
    top.add_argument("--writers", type=int, nargs="+", default=[0], help="writer processes (0: what a job takes)")
    top.add_argument("--tensor-parallel", type=int, default=1)
    top.add_argument("--gpu-memory-utilization", type=float, default=0.5)
    top.add_argument("--bench-host", action="store_true", help="for a vLLM without compiled kernels: Triton only")
    top.add_argument("--timeout", type=int, default=600, help="seconds that a stage may take")
    top.add_argument("--stage", nargs=2, help=argparse.SUPPRESS)
    return top


def main() -> int:
    """Measure and print a table, each line as it is known, and one line of JSON."""
    if "--stage" in sys.argv:
        name, out = sys.argv[-2:]
        given = argparse.Namespace(**json.load(sys.stdin))
        if given.bench_host:
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        Path(out).write_text(json.dumps(STAGES[name](given)), encoding="utf-8")
        return 0
    given = parser().parse_args()
    with contextlib.ExitStack() as stack:
        folder = tempfile.TemporaryDirectory
        homes = [stack.enter_context(folder(prefix="aerie-bench-", dir=target)) for target in given.target]
        names = dict(zip((f"{home}/out" for home in homes), given.target, strict=True))
        given.target = list(names)
        if given.shape:
            given.checkpoint = str(Path(homes[0]) / "model")
            make_checkpoint(given.shape, Path(given.checkpoint))
        found = settle(given)
        print(heading(found), flush=True)
        found["rows"] = []
        for row in measure(given, names):
            print(line(row), flush=True)
            found["rows"].append(row)
        print("\n" + json.dumps(found))
    return 0


def settle(given: argparse.Namespace) -> dict[str, Any]:
    """Fill in what was left open; return what all rows have in common."""
    from aerie_host.extract.writers import worker_count

    config = json.loads((Path(given.checkpoint) / "config.json").read_text(encoding="utf-8"))
    config = config.get("text_config", config)
    count = config["num_hidden_layers"]
    given.layers = given.layers or sorted({2, count // 2, count - 3, count - 1})
    given.writers = [worker_count(asked) for asked in given.writers]
    given.hidden = config["hidden_size"]
    given.per_token = 2 * given.hidden * len(given.layers) + 16
    free = min(shutil.disk_usage(Path(target).parent).free for target in given.target)
    given.most_tokens = int(min(MOST_BYTES, 0.4 * free) / given.per_token)
    return {
        "model": given.shape or given.checkpoint,
        "layers": given.layers,
        "hidden": given.hidden,
        "tensor_parallel": given.tensor_parallel,
        "cores": len(os.sched_getaffinity(0)),
    }


def measure(given: argparse.Namespace, names: dict[str, str | None]) -> Iterator[dict[str, Any]]:
    """All stages, and what their numbers mean together. ``names`` are the targets as they were asked for."""
    for step_tokens in given.step_tokens:
        stage = argparse.Namespace(**{**vars(given), "step_tokens": step_tokens})
        if given.no_model:
            tokens = given.tokens or min(given.most_tokens, int(WITHOUT_MODEL_BYTES / given.per_token))
            stage.plan = {lengths: {"tokens": tokens, "plain": None} for lengths in given.lengths}
        else:
            stage.plan = run_stage("plain", stage)
        for row in run_stage("writers" if given.no_model else "extraction", stage)["rows"]:
            one = {"step_tokens": step_tokens, "generate": None, **stage.plan[row["lengths"]], **row}
            one["target"] = names[row["target"]] or "temporary folder"
            one["write"] = one["write_bytes_per_s"] / one["bytes"] * one["tokens"]
            one["limit"] = min(filter(None, (one["plain"], one["write"])))
            yield one


COLUMNS = (
    "step tokens", "lengths", "target", "writers",
    "plain prefill", "generate()", "to files", "write rate", "of plain", "of limit", "waited for writers",
)  # fmt: skip


def heading(found: dict[str, Any]) -> str:
    """What was measured, and the head of the table."""
    return (
        f"{found['model']}: hidden {found['hidden']}, layers {found['layers']}, tensor parallel "
        f"{found['tensor_parallel']}, {found['cores']} cores; tokens/s\n\n"
        f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"
    )


def rate(tokens: float | None) -> str:
    """Tokens per second; nothing where none were measured."""
    return "" if tokens is None else f"{tokens:,.0f}"


def line(row: dict[str, Any]) -> str:
    """One line of the table."""
    of_plain = f"{row['files'] / row['plain']:.2f}" if row["plain"] else ""
    return (
        f"| {row['step_tokens']:,} | {row['lengths']} | {row['target']} | {row['writers']} "
        f"| {rate(row['plain'])} | {rate(row['generate'])} | {rate(row['files'])} "
        f"| {row['write']:,.0f} ({row['write_bytes_per_s'] / 1e9:.2f} GB/s) "
        f"| {of_plain} "
        f"| {row['files'] / row['limit']:.2f} | {row['waited_for_writers']:.1f} of {row['seconds']:.1f} s |"
    )

"""The stages of bench/extract.py that need an engine; each runs in a process of its own, with the same options."""

from __future__ import annotations

import functools
import itertools
import random
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.benchkit.extract_write import measure_write

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from aerie_host.extract.engine import Engine
    from aerie_host.folder.layout import Folder

WRITTEN = int(4e9)  # bytes, at most, that each measurement of the target folder writes
SECONDS = 16.0  # what each measurement should take: the last files come after the last step, a share that must be small


def sequences(lengths: str, tokens: int, longest: int, seed: int) -> list[list[int]]:
    """Random token ids, ``tokens`` in all: of one length, or mixed as conversations are (the median 0.3 of longest)."""
    draw = random.Random(seed)  # noqa: S311 - load, not secrets
    made: list[list[int]] = []
    left = tokens
    while left > 0:
        length = int(lengths) if lengths != "mixed" else int(longest * min(1.0, 0.3 * draw.lognormvariate(0, 0.8)))
        length = max(1, min(length, left, longest))
        made.append(draw.choices(range(5, 500), k=length))
        left -= length
    return made


def engine_options(given: argparse.Namespace) -> dict[str, Any]:
    """What a host whose vLLM has no compiled kernels needs."""
    if not given.bench_host:
        return {}
    from vllm.config import AttentionConfig, CompilationConfig

    return {
        "compilation_config": CompilationConfig(custom_ops=["none"], mode=0),
        "attention_config": AttentionConfig(backend="TRITON_ATTN"),
    }


def load_format(given: argparse.Namespace) -> str:
    """Weights of a named shape are made up."""
    return "dummy" if given.shape else "auto"


def measure_plain(given: argparse.Namespace) -> dict[str, Any]:
    """Plain prefill, and how many tokens a measurement of ``SECONDS`` takes."""
    from vllm import LLM, SamplingParams

    from aerie_host.extract.generator import SEQUENCES

    llm = LLM(
        given.checkpoint,
        enforce_eager=True,
        max_model_len=given.max_length + 1,
        max_num_batched_tokens=given.step_tokens,
        max_num_seqs=min(SEQUENCES, given.step_tokens),
        gpu_memory_utilization=given.gpu_memory_utilization,
        enable_prefix_caching=False,
        tensor_parallel_size=given.tensor_parallel,
        load_format=load_format(given),
        **engine_options(given),
    )
    sampling = SamplingParams(max_tokens=1, temperature=0.0, detokenize=False)

    def run(lengths: str, tokens: int, seed: int) -> float:
        prompts = [{"prompt_token_ids": ids} for ids in sequences(lengths, tokens, given.max_length, seed)]
        began = time.perf_counter()
        llm.generate(prompts, sampling, use_tqdm=False)
        return tokens / (time.perf_counter() - began)

    found = {}
    for lengths in given.lengths:
        run(lengths, 2 * given.step_tokens, 1)
        rate = run(lengths, 2 * given.step_tokens, 2)
        if 16 * given.step_tokens < rate:
            rate = run(lengths, 16 * given.step_tokens, 2)  # two steps are mostly overhead there
        tokens = int(min(rate * SECONDS, given.most_tokens)) if not given.tokens else given.tokens
        tokens = max(tokens, 2 * given.step_tokens)
        found[lengths] = {"tokens": tokens, "plain": run(lengths, tokens, 3)}
        print(f"{lengths}, plain prefill: {found[lengths]['plain']:,.0f} tokens/s", file=sys.stderr)
    return found


def load_extraction(given: argparse.Namespace) -> Any:
    """The generator as an extraction job loads it."""
    from speculators.data_generation import vllm_hidden_states_generator as module

    from aerie_host.extract.generator import EngineLimits, make_generator

    module.VllmConfig = functools.partial(module.VllmConfig, **engine_options(given))
    module.LoadConfig = functools.partial(module.LoadConfig, load_format=load_format(given))
    return make_generator(
        Path(given.checkpoint),
        given.layers,
        EngineLimits(given.max_length, given.step_tokens),
        gpu_memory_utilization=given.gpu_memory_utilization,
        tensor_parallel_size=given.tensor_parallel,
    )


def measure_extraction(given: argparse.Namespace) -> dict[str, Any]:
    """States by ``generate`` and states in files."""
    from aerie_host.extract import writers
    from aerie_host.extract.engine import VllmEngine

    writers.warm_up()
    generator = load_extraction(given)
    engine, layers = VllmEngine(generator), generator.layer_ids
    found: dict[str, Any] = {"rows": []}
    try:
        for lengths in given.lengths:
            tokens = given.plan[lengths]["tokens"]
            by_generate(generator, lengths, 2 * given.step_tokens, given)
            generate = by_generate(generator, lengths, max(2 * given.step_tokens, tokens // 4), given)
            for row in to_targets(engine, layers, lengths, tokens, given):
                found["rows"].append({**row, "generate": generate})
    finally:
        generator.executor.shutdown()
    return found


def measure_writers(given: argparse.Namespace) -> dict[str, Any]:
    """Made-up states in files."""
    from aerie_host.extract import writers
    from bench.benchkit.extract_made_up import MadeUpEngine

    writers.warm_up()
    engine = MadeUpEngine(given.layers, given.step_tokens, given.hidden)
    rows = [
        row
        for lengths in given.lengths
        for row in to_targets(engine, given.layers, lengths, given.plan[lengths]["tokens"], given)
    ]
    return {"rows": rows}


def to_targets(
    engine: Engine, layers: list[int], lengths: str, tokens: int, given: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """For each target folder and number of writers, extract to files between two measurements of the folder alone."""
    from aerie_host.extract.engine import StatesSource

    for target, count in itertools.product(given.target, given.writers):
        source = StatesSource(engine, clear(Path(target)), layers, count)
        few = to_files(source, lengths, 4 * given.step_tokens, given, 10**6)
        sizes = [path.stat().st_size for path in sorted(Path(target).glob("data_*.pt"))[:64]]
        total = min(few["bytes"] * tokens // (4 * given.step_tokens), WRITTEN)
        before = measure_write(target, sizes, total, count)
        one = to_files(source, lengths, tokens, given, 0)
        source.close_writers()
        write = (before + measure_write(target, sizes, total, count)) / 2
        # Where a later one fails, this is what there is.
        print(f"{lengths} to {target}, {count} writers: {one['files']:,.0f} tokens/s", file=sys.stderr)
        yield {"lengths": lengths, "target": target, "writers": count, **one, "write_bytes_per_s": write}


def by_generate(generator: Any, lengths: str, tokens: int, given: argparse.Namespace) -> float:
    """Tokens per second of ``generate``, called with a few steps' worth of sequences at a time."""
    wanted = sequences(lengths, tokens, given.max_length, 3)
    began = time.perf_counter()
    while wanted:
        batch, used = [], 0
        while wanted and used < 4 * given.step_tokens:
            batch.append(wanted.pop())
            used += len(batch[-1])
        generator.generate(batch)
    return tokens / (time.perf_counter() - began)


def to_files(source: Any, lengths: str, tokens: int, given: argparse.Namespace, first: int) -> dict[str, Any]:
    """Extract to files as a job does, to the last one journaled."""
    from aerie_host.data.samples import Sample
    from aerie_host.extract import schedule

    wanted = sequences(lengths, tokens, given.max_length, 4)
    samples = [Sample(first + n, n + 1, "", ids, [1] * len(ids)) for n, ids in enumerate(wanted)]
    waited, began = source.waited_seconds, time.perf_counter()
    entries = list(itertools.chain.from_iterable(source.extract(schedule.order(samples, given.step_tokens))))
    seconds = time.perf_counter() - began
    if len(entries) != len(samples):
        raise SystemExit(f"{len(entries)} files for {len(samples)} samples")
    return {
        "files": tokens / seconds,
        "bytes": sum(entry.bytes for entry in entries),
        "samples": len(entries),
        "seconds": seconds,
        "waited_for_writers": source.waited_seconds - waited,
    }


def clear(target: Path) -> Folder:
    """An empty folder to extract into."""
    from aerie_host.folder.layout import Folder

    if target.exists():
        shutil.rmtree(target)
    folder = Folder(target)
    folder.create()
    return folder


STAGES = {"plain": measure_plain, "extraction": measure_extraction, "writers": measure_writers}

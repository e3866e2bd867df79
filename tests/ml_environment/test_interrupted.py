"""Writers that die, disks that fill, stops and kills: what was finished stays, and the next run goes on."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from aerie_host.folder import journal
from tests.ml_environment.conftest import ANSWERS
from tests.refusals import refused


def test_a_writer_that_is_killed_stops_the_job_by_name_and_the_next_run_goes_on(extraction):
    original = extraction.engine

    def murderous(job):
        engine = original(job)

        def kill(rows):
            if len(engine.steps) == 2:
                victim = next(child for child in multiprocessing.active_children() if child.name == "writer 0")
                os.kill(victim.pid, signal.SIGKILL)
                victim.join()
            return rows

        engine.change_rows = kill
        return engine

    extraction.engine = murderous
    with refused(match=r"writer 0: it ended \(exit code -9\) with samples"):
        extraction.run()
    extraction.engine = original
    assert extraction.run().data["samples"] == len(ANSWERS)


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_stop_while_a_template_renders_is_no_row_that_is_refused(extraction, monkeypatch, call):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(extraction.spec["model"])
    render, calls = tokenizer.apply_chat_template, itertools.count(1)

    def stopping(*arguments, **named):
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGTERM)
        return render(*arguments, **named)

    tokenizer.apply_chat_template = stopping
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: tokenizer)
    with refused(match="stopped by SIGTERM; what was finished stays"):
        extraction.run(max_skipped=5)
    assert not extraction.folder.manifest.exists()
    assert extraction.run().data["samples"] == len(ANSWERS)


def test_the_disk_is_measured_before_the_model_is_loaded(extraction, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10**12, 0, 1000))
    with refused(match=r"before loading the model: 7 samples take 0\.00 GB"):
        extraction.run()
    assert extraction.loads == []


def test_a_disk_that_fills_while_running_leaves_a_state_to_go_on_from(extraction, monkeypatch):
    usage = namedtuple("usage", "total used free")
    # More than writers may finish before they have to say so: the look at the disk comes with what they say.
    answers = ANSWERS * 40
    extraction.write_data(answers)
    free = iter([10**12])
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _path: usage(10**12, 0, next(free, 1000)))
        with refused(match=r"while running: 0\.00 GB are free"):
            extraction.run(disk_reserve=1001)
    done = extraction.digests()
    assert 0 < len(done) < len(answers)
    outcome = extraction.run()
    assert outcome.data["kept"] == len(done)
    assert {name: extraction.digests()[name] for name in done} == done


def test_a_write_that_fails_half_way_leaves_no_half_file(extraction):
    original = extraction.engine

    def limited(job):
        engine = original(job)

        def limit(rows):
            for child in multiprocessing.active_children():
                resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))
            return rows

        engine.change_rows = limit
        return engine

    extraction.engine = limited
    with refused(match="could not be written: File too large"):
        extraction.run()
    assert list(extraction.folder.temporary.iterdir()) == []
    for name in extraction.digests():
        torch.load(extraction.output / name, weights_only=True)
    extraction.engine = original
    assert extraction.run().data["samples"] == len(ANSWERS)


def test_a_journal_that_cannot_be_written_is_named(extraction):
    extraction.folder.create()
    extraction.folder.journal.mkdir()
    with refused(match=r"journal\.jsonl could not be written: Is a directory\..* finished samples are kept"):
        extraction.run()
    extraction.folder.journal.rmdir()
    outcome = extraction.run()
    assert outcome.data["samples"] == len(ANSWERS)
    assert set(outcome.data["redone"]) == {"file not in the journal"}


DRIVER = """
import json, sys, time
sys.path[:0] = json.loads(sys.argv[1])
from aerie_host.extract import command as extract, engine as engine_module, model_run
from aerie_host.spec import Spec
from tests.ml_environment.transformers_engine import TransformersEngine
def load(job, folder):
    engine = TransformersEngine(str(job.model), job.layers, job.token_budget)
    print("loaded", flush=True)
    return engine_module.StatesSource(engine, folder, job.layers, job.writers)
model_run.load_source = load
outcome = extract.run(Spec(json.loads(sys.argv[2]), "extract"), False)
sys.exit(outcome.failed)
"""


def test_killed_at_any_moment_nothing_is_lost_and_nothing_done_twice(extraction):
    extraction.write_data([f"Answer {n} " * (n % 9 + 1) for n in range(40)])
    spec = json.dumps({**extraction.spec, "token_budget": 100})
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", DRIVER, json.dumps([root, f"{root}/host"]), spec]
    chance = random.Random(4)  # noqa: S311 - any moment will do
    finished: dict[str, tuple[str, int]] = {}
    for _ in range(6):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            process.stdout.readline()
            time.sleep(chance.uniform(0, 0.6))
            os.kill(process.pid, signal.SIGKILL)
        recorded = {record.file for record in journal.read(extraction.folder.journal).values()}
        now = extraction.digests()
        assert {name: now[name] for name in finished} == finished
        finished = {name: now[name] for name in recorded}
    extract_again = subprocess.run(command, check=False, capture_output=True, text=True)
    assert extract_again.returncode == 0, extract_again.stderr
    now = extraction.digests()
    assert set(now) == {f"data_{n}.pt" for n in range(40)}
    assert {name: now[name] for name in finished} == finished
    assert extraction.run(token_budget=100).data["nothing_to_do"]

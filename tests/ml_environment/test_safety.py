"""Disks, targets and kills: with a real small filesystem, and with the real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.ml_environment.conftest import ANSWERS
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]


def samples(output):
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in output.glob("data_*.pt")}


def test_a_full_disk_at_some_sample_leaves_whole_files_and_the_next_run_goes_on(extraction, small_disk):
    extraction.write_data(["In Norway " * 30] * 12)
    output = small_disk / "out"
    extraction.spec["output"] = str(output)
    # Room for three or four of twelve: the gate before the model is told a lie, as by another job that fills the disk.
    filler = small_disk / "filler"
    original = extraction.engine

    def filling(job):
        filler.write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize - 400_000))
        return original(job)

    extraction.engine = filling
    with refused(match=r"could not be written: No space left on device|while running: .* are free"):
        extraction.run()
    done = samples(output)
    assert len(done) < 12
    for name in done:
        torch.load(output / name, weights_only=True)
    assert not (output / "manifest.json").exists()
    filler.unlink()
    extraction.engine = original
    outcome = extraction.run()
    assert (outcome.data["samples"], len(samples(output))) == (12, 12)
    assert outcome.data["kept"] == len(done)
    assert {name: samples(output)[name] for name in done} == done


def test_a_disk_too_small_is_refused_before_the_model_is_loaded(extraction, small_disk):
    extraction.write_data(["In Norway " * 30] * 100)
    with refused(match="before loading the model: 100 samples take"):
        extraction.run(output=str(small_disk / "out"))
    assert extraction.loads == []
    assert samples(small_disk / "out") == {}


def test_a_target_that_is_read_only_is_refused_before_anything_is_read(extraction, small_disk):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with refused(match="cannot be written: Read-only file system"):
        extraction.run(output=str(small_disk / "out"))
    assert extraction.loads == []


def test_a_target_that_is_missing_is_made_with_its_parents(extraction, tmp_path):
    extraction.run(output=str(tmp_path / "a/b/c"))
    assert len(samples(tmp_path / "a/b/c")) == len(ANSWERS)


SOURCE = """
class Source:
    waited_seconds = 0.0
    def extract(self, samples):
        {step}
        yield []
    def close(self):
        {end}
model_run.load_source = lambda job, folder: Source()
"""
CODE = """
import json, sys, time
sys.path[:0] = sys.argv[1].split(":")
from aerie_host.data import data_file
from aerie_host.extract import command as extract, ending, model_run, progress
from aerie_host.folder import resume
from aerie_host.spec import Spec
{hang}
extract.run(Spec(json.loads(sys.argv[2]), "extract"), False)
"""
HANG = "time.sleep(600)"


@pytest.mark.parametrize(
    ("hang", "limit", "what"),
    [
        ("model_run.load_source = lambda job, folder: time.sleep(600)", "start_timeout", "loading the model"),
        ("data_file.Row.__new__ = lambda *row: time.sleep(600)", "batch_timeout", "reading the data"),
        ("resume.sha256_file = lambda path: time.sleep(600)", "batch_timeout", "checking files"),
        (SOURCE.format(step=HANG, end="pass"), "batch_timeout", "one step"),
        (SOURCE.format(step="yield []", end=HANG), "batch_timeout", "ending the engine"),
    ],
    ids=["load", "row", "file", "step", "end"],
)
def test_what_hangs_is_ended_with_stacks(extraction, tmp_path, hang, limit, what):
    # Token ids: the import of what makes tokens takes longer than the limit.
    extraction.data.write_text('{"input_ids": [5, 6, 7]}\n')
    if what == "checking files":
        extraction.run()
        extraction.folder.manifest.unlink()
    metrics = tmp_path / "aerie.prom"
    spec = json.dumps({**extraction.spec, limit: 0.5, "prometheus_file": str(metrics)})
    command = [sys.executable, "-c", CODE.format(hang=hang), f"{ROOT}:{ROOT / 'host'}", spec]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert f"aerie: {what} took longer than 0.5 seconds; stacks of all threads follow" in done.stderr
    assert "in _write_samples" in done.stderr
    assert json.loads((extraction.folder.state / "progress.json").read_text())["phase"] == "failed"
    assert 'phase{phase="failed"} 1' in metrics.read_text()


@pytest.mark.parametrize(
    "hang",
    [
        "progress.Progress.last_words = model_run.load_source = lambda *_: time.sleep(600)",
        # Nobody reads what it says, and who says more waits for the lock of who waits for a reader.
        "model_run.load_source = lambda job, folder: print('x' * 10**7, file=sys.stderr)",
    ],
    ids=["last words", "standard error"],
)
def test_a_hang_that_holds_up_the_last_words_is_ended_without(extraction, hang):
    extraction.data.write_text('{"input_ids": [5, 6, 7]}\n')
    spec = json.dumps({**extraction.spec, "start_timeout": 0.5})
    code = CODE.format(hang=f"ending.LAST_WORDS_SECONDS = 0.5\n{hang}")
    command = [sys.executable, "-c", code, f"{ROOT}:{ROOT / 'host'}", spec]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            assert process.wait(timeout=60) == 1
        finally:
            process.kill()


def test_three_kills_with_the_real_engine_lose_nothing():
    """What `bench/kill.py` does 50 times."""
    command = [sys.executable, str(ROOT / "bench/kill.py"), "--times", "3", "--seed", "5", "--samples", "80"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["kills"], found["wrong"]) == (3, 0)
    assert sum(found["victims"].values()) == 3
    # The engine's worker sees that it is alone when the driver was the victim.
    assert found["orphans ended"] == 0

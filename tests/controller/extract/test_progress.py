"""The numbers of a running job, for people, for machines and for Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import pytest

from aerie_host.extract import gpu_memory, progress, prometheus
from aerie_host.extract.progress import Progress, Watch, Watchdog
from aerie_host.shared.progress import progress_line
from aerie_host.shared.refusal import Refusal
from tests.refusals import refused


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(progress, "WRITE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(gpu_memory, "used_bytes", lambda: [61_200_000_000, 5_000_000])
    made = Progress(tmp_path / "progress.json", tmp_path / "aerie.prom")
    made.plan(12, 1000, 2)
    return made


def test_the_same_numbers_everywhere(made, tmp_path, monkeypatch):
    made.phase("loading the model")
    made.phase("extracting")
    # Two seconds, of which one went by in waiting for files.
    monkeypatch.setattr(Progress, "extracting_seconds", 2.0)
    made.waited_seconds = lambda: 1.0
    made.add(3, 250, 4_000_000_000)
    made.phase("finished")
    state = json.loads((tmp_path / "progress.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert [line["phase"] for line in lines] == [
        "preparing",
        "loading the model",
        "extracting",
        "extracting",
        "finished",
    ]
    clock = {"time", "seconds"}
    assert {key: value for key, value in lines[-1].items() if key not in clock} == {
        key: value for key, value in state.items() if key not in clock
    }
    assert (state["samples"], state["total"], state["tokens"], state["bytes_written"]) == (5, 12, 250, 4_000_000_000)
    assert (state["tokens_per_s"], state["ceiling_tokens_per_s"], state["seconds_left"]) == (125.0, 250.0, 6.0)
    words = progress_line(state)
    assert words == (
        "5/12 samples, 125 tokens/s (50% of 250 without waiting for files), 4.0 GB written, 6 s left, "
        "GPU memory 61.2 0.0 GB"
    )
    text = (tmp_path / "aerie.prom").read_text()
    assert "\naerie_extraction_samples 5\n" in text
    assert '\naerie_extraction_gpu_memory_used_bytes{gpu="1"} 5000000\n' in text


def test_a_new_run_begins_its_lines_anew(made, tmp_path):
    made.phase("extracting")
    Progress(tmp_path / "progress.json")
    assert len((tmp_path / "progress.jsonl").read_text().splitlines()) == 1


def test_the_text_keeps_the_grammar_of_the_format(made, tmp_path):
    # Every sample after the TYPE of its name, which comes once.
    seen, current = [], ""
    for line in prometheus.text(made.state).splitlines():
        if line.startswith("# HELP "):
            current = line.split()[2]
            seen.append(current)
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {current} gauge"
        else:
            assert re.fullmatch(rf'{current}(\{{[a-z]+="[^"\\\n]*"\}})? -?[0-9.e+-]+', line), line
    assert len(seen) == len(set(seen)) > 8
    assert all(re.fullmatch(r"aerie_extraction_[a-z_]+", name) for name in seen)
    # What is not known yet is left out, and not called 0.
    assert "aerie_extraction_tokens_per_second" not in seen


def test_a_metrics_file_that_cannot_be_written_is_refused_at_the_start(tmp_path):
    with refused(match=r"nowhere/a\.prom cannot be written: No such file"):
        Progress(tmp_path / "progress.json", tmp_path / "nowhere/a.prom")
    (tmp_path / "a.prom").mkdir()
    with refused(match=r"a\.prom cannot be written: Is a directory"):
        Progress(tmp_path / "progress.json", tmp_path / "a.prom")
    assert {path.name for path in tmp_path.iterdir()} == {"a.prom"}


def test_a_second_job_on_a_metrics_file_is_refused_while_the_first_lives(tmp_path):
    script = (
        "import sys, pathlib; from aerie_host.extract.progress import Progress\n"
        "home = pathlib.Path(sys.argv[1]); made = Progress(home / 'first.json', home / 'a.prom')\n"
        "print('held', flush=True)\n"
        "for line in sys.stdin:\n made.phase(line.strip()); print('written', flush=True)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    file = tmp_path / "a.prom"
    with subprocess.Popen(command, env={"PYTHONPATH": ":".join(sys.path)}, **pipes) as holder:
        holder.stdout.readline()
        for phase in ("extracting", "loading the model"):
            with pytest.raises(
                Refusal,
                match=rf"a\.prom is in use by another extraction \(process {holder.pid}\); wanted a file",
            ):
                Progress(tmp_path / "second.json", file)
            # The first one's next file is its own as well.
            holder.stdin.write(f"{phase}\n")
            holder.stdin.flush()
            holder.stdout.readline()
            assert f'phase="{phase}"}} 1' in file.read_text()
        # Nor does a killed one leave anything in the way.
        holder.kill()
    second = Progress(tmp_path / "second.json", file)
    assert 'phase="preparing"} 1' in file.read_text()
    second.close()
    Progress(tmp_path / "third.json", file).close()
    assert [path.name for path in tmp_path.iterdir() if "prom" in path.name] == ["a.prom"]


def test_a_file_that_another_made_meanwhile_is_not_held(tmp_path, monkeypatch):
    file = tmp_path / "a.prom"
    lock, replaced = prometheus.hold_at_once, []

    def late(stream):
        if not replaced:
            replaced.append(tmp_path / "other")
            replaced[0].write_text("")
            replaced[0].replace(file)
        return lock(stream)

    monkeypatch.setattr(prometheus, "hold_at_once", late)
    first = prometheus.MetricsFile(file)
    with refused(match="in use by another extraction"):
        prometheus.MetricsFile(file)
    first.close()


def test_progress_that_cannot_be_written_later_is_said_once_and_ends_nothing(made, tmp_path, capsys):
    (tmp_path / "aerie.prom").unlink()
    (tmp_path / "aerie.prom").mkdir()
    for _ in range(3):
        made.add(1, 10, 10)
    assert capsys.readouterr().err.count("the progress cannot be written") == 1


def test_without_a_driver_there_is_no_gpu_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_memory, "CONTROL", tmp_path / "nvidiactl")
    assert gpu_memory.used_bytes() == []


def test_going_through_items_is_said_and_each_has_its_limit(made, tmp_path, monkeypatch, capsys):
    ended = []

    class Counting(Watchdog):
        expected = 0

        def expect(self, what, seconds):
            self.expected += 1
            super().expect(what, seconds)

    monkeypatch.setattr(progress, "SAY_EVERY_SECONDS", 0.01)
    dog = Counting(ended.append)
    for item in Watch(made, dog, 600).each("reading the data", range(4)):
        if item == 2:
            state = json.loads((tmp_path / "progress.json").read_text())
            assert (state["phase"], state["looked_at"]) == ("reading the data", 2)
        time.sleep(0.02)
    # The limit began anew with every item.
    assert (dog.expected, ended) == (4, [])
    assert "reading the data: 3 done" in capsys.readouterr().err
    deadline = time.monotonic() + 30
    for _ in Watch(made, dog, 0.05).each("checking files", range(9)):
        while not ended and time.monotonic() < deadline:
            time.sleep(0.01)
        break
    assert ended == ["checking files took longer than 0.05 seconds"]
    made.phase("extracting")
    assert made.state["looked_at"] == 0

"""kill -9 at random moments, with the real engine and a tiny random model; then the next run, and what it must find.

Each round begins an extraction, kills one victim (the driver, a writer, the engine's worker, or the whole tree of
processes) at a moment that the seed decides, and lets a second run finish. A fifth of the moments lie in the start-up,
the others between the first file and the end. After the kill, every journaled sample must be there whole. After the
second run every asked sample must be there exactly once; what the journal had named must have the digest, time and
inode that it had, and must not have been computed again.

To spare the imports (most of a run's time), runs are forked from one process that has done them, and the worker is
forked from the run, as vLLM does by default where no GPU is in use yet. Everything else is what a job does.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from aerie_host.folder import journal
from aerie_host.folder.layout import Folder
from aerie_host.shared.digests import sha256_file
from bench.benchkit.kill_processes import VICTIMS, ended, find, preload, session, start

LAYERS = [0, 2, 4, 5]
# How long a run may take, far beyond what it needs; and how long what a kill leaves may take to see that it is alone.
RUN_SECONDS = 600.0
ENDING_SECONDS = 10.0


def make_inputs(home: Path, samples: int, seed: int) -> Path:
    """A model, and conversations of many lengths; the specification's path."""
    from tests.ml_environment.models import checkpoint

    chance = random.Random(seed)  # noqa: S311 - lengths
    lines = [
        json.dumps(
            {
                "messages": [
                    {"role": "user", "content": f"Question {number}?"},
                    {"role": "assistant", "content": f"Answer {number}. " * chance.randint(1, 24)},
                ]
            }
        )
        for number in range(samples)
    ]
    (home / "data.jsonl").write_text("\n".join(lines) + "\n")
    spec = {
        "model": str(checkpoint(home / "model")),
        "data": str(home / "data.jsonl"),
        "output": str(home / "out"),
        "layer_ids": LAYERS,
        "max_length": 400,
        "token_budget": 256,
        "writers": 2,
        "disk_reserve": 0,
        "progress": str(home / "progress.json"),
    }
    (home / "spec.json").write_text(json.dumps(spec))
    return home / "spec.json"


@dataclasses.dataclass
class Round:
    """One kill, and what came of it."""

    victim: str
    moment: str
    killed: bool = False
    journaled: int = 0
    unjournaled: int = 0
    unfinished: int = 0
    orphans: int = 0
    extracted: int = 0
    redone: dict[str, int] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)


class Killing:
    """Rounds in one folder."""

    def __init__(self, home: Path, samples: int, seed: int) -> None:
        self.home = home
        self.samples = samples
        self.chance = random.Random(seed)  # noqa: S311 - moments
        self.spec = make_inputs(home, samples, seed)
        self.folder = Folder(home / "out")
        self.start_seconds = self.extract_seconds = 5.0

    def run(self) -> dict[str, Any]:
        """A run to its end; its result document."""
        pid = start(self.spec, self.home)
        deadline = time.monotonic() + RUN_SECONDS
        while not ended(pid):
            if time.monotonic() > deadline:
                self.end(pid)
                return {"failed": True, "msg": f"did not end within {RUN_SECONDS:g} s"}
            time.sleep(0.02)
        self.end(pid)
        result = self.home / "result.json"
        return json.loads(result.read_text()) if result.exists() else {"failed": True, "msg": "gave no result"}

    def end(self, leader: int) -> int:
        """Wait until nothing of a run is left; what stays is counted and ended, as the start of a job does."""
        deadline = time.monotonic() + ENDING_SECONDS
        while (left := session(leader)) and time.monotonic() < deadline:
            ended(leader)
            time.sleep(0.05)
        while family := session(leader):
            for pid in family:
                os.kill(pid, signal.SIGKILL)
            ended(leader)
            time.sleep(0.05)
        return len(left)

    def await_moment(self, leader: int) -> str:
        """Wait for the moment that chance decides; it in words."""
        if self.chance.random() < 0.2:
            seconds = self.chance.uniform(0, self.start_seconds)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and leader in session(leader):
                time.sleep(0.01)
            return f"{seconds:.1f} s after the start"
        seconds = self.chance.uniform(0, self.extract_seconds)
        while not self.begun() and leader in session(leader):
            time.sleep(0.002)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and leader in session(leader):
            time.sleep(0.002)
        return f"{seconds:.2f} s after the first file"

    def begun(self) -> bool:
        """Whether a writer has begun a file."""
        temporary = self.folder.temporary
        return self.folder.journal.exists() or (temporary.is_dir() and any(temporary.iterdir()))

    def kill(self, victim: str) -> Round:
        """Begin a run and kill the victim."""
        leader = start(self.spec, self.home)
        done = Round(victim, self.await_moment(leader))
        pids: list[int] = []
        while not pids and leader in session(leader):
            pids = find(victim, leader)
            time.sleep(0.005)
        # A writer or a worker is one of several: any of them.
        for pid in pids if victim == "tree" else [self.chance.choice(pids)] if pids else []:
            # Of a tree, some end with their parents.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                done.killed = True
        done.orphans = self.end(leader)
        return done

    def round(self, victim: str) -> Round:
        """Kill, look, run again, look."""
        self.clear()
        done = self.kill(victim)
        records = journal.read(self.folder.journal)
        files = {path.name: path for path in self.folder.training_files()}
        good = {}
        for record in records.values():
            path = files.get(record.file)
            if path is None or sha256_file(path) != record.sha256:
                done.problems.append(f"{record.file} is in the journal and not whole")
            else:
                good[record.file] = self.look(path)
        for path in files.values():
            # Named means complete, journaled or not.
            data = torch.load(path, weights_only=True)
            if {len(states) for states in data["hidden_states"]} != {len(data["input_ids"])}:
                done.problems.append(f"{path.name} has its name and not all of its rows")
        done.journaled, done.unjournaled = len(good), len(files) - len(good)
        temporary = self.folder.temporary
        done.unfinished = len(list(temporary.iterdir())) if temporary.is_dir() else 0
        complete = self.folder.manifest.exists()
        self.check_next(done, self.run(), good, complete)
        return done

    @staticmethod
    def look(path: Path) -> tuple[str, int, int]:
        """What must not change of a file that is whole."""
        found = path.stat()
        return sha256_file(path), found.st_mtime_ns, found.st_ino

    def check_next(self, done: Round, document: dict[str, Any], good: dict[str, Any], complete: bool) -> None:
        """What the run after the kill must leave."""
        if document.get("failed"):
            done.problems.append(f"the next run failed: {document.get('msg')}")
            return
        data = document["aerie"]["data"]
        done.extracted, done.redone = data["extracted"], data["redone"]
        asked = {f"data_{number}.pt" for number in range(self.samples)}
        files = {path.name: path for path in self.folder.training_files()}
        manifest = json.loads(self.folder.manifest.read_text())["samples"]
        if set(files) != asked or sorted(one["file"] for one in manifest) != sorted(asked):
            done.problems.append(f"{len(files)} files, {len(manifest)} in the manifest, {len(asked)} asked")
        wrong = [one["file"] for one in manifest if sha256_file(files[one["file"]]) != one["sha256"]]
        touched = [name for name, before in good.items() if self.look(files[name]) != before]
        again = {record.file for record in journal.read(self.folder.journal).values()} & set(good)
        if wrong or touched or len(again) != len(good):
            done.problems.append(f"digests wrong: {wrong}; touched though whole: {touched}")
        kept, lost = (len(asked), 0) if complete else (len(good), len(asked) - len(good))
        if (data["kept"], data["extracted"]) != (kept, lost):
            done.problems.append(f"kept {data['kept']} of {kept}, extracted {data['extracted']} of {lost}")
        counted = sum(data["redone"].values())
        if not complete and counted != done.unjournaled:
            done.problems.append(
                f"{done.unjournaled} files were there without a line of the journal, counted {counted}"
            )

    def clear(self) -> None:
        """An empty folder."""
        if self.folder.path.exists():
            self.folder.clear()


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="bench/kill.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=50, help="how many kills (default 50)")
    parser.add_argument("--seed", type=int, default=1, help="decides victims and moments (default 1)")
    parser.add_argument("--samples", type=int, default=160, help="samples of the extraction (default 160)")
    parser.add_argument("--folder", help="where to make the folder (default: the system's temporary folder)")
    options = parser.parse_args()
    preload()
    with tempfile.TemporaryDirectory(prefix="aerie-kill-", dir=options.folder) as name:
        killing = Killing(Path(name), options.samples, options.seed)
        began = time.monotonic()
        document = killing.run()
        if document.get("failed"):
            print((Path(name) / "log").read_text()[-4000:], file=sys.stderr)
            print(f"the first run, which nobody killed, failed: {document.get('msg')}", file=sys.stderr)
            return 1
        killing.start_seconds = document["aerie"]["data"]["start_seconds"]
        killing.extract_seconds = document["aerie"]["data"]["seconds"]
        print(f"{options.samples} samples, a run takes {time.monotonic() - began:.0f} s", flush=True)
        rounds: list[Round] = []
        while sum(one.killed for one in rounds) < options.times and len(rounds) < 2 * options.times:
            # In turn, so that few times have every victim too. A run that ended before its moment does not count.
            done = killing.round(VICTIMS[len(rounds) % len(VICTIMS)])
            rounds.append(done)
            text = f"{len(rounds):>3} {done.victim:<6} {done.moment:<28} journal {done.journaled:>3}, "
            text += (
                f"named {done.unjournaled}, half {done.unfinished}, orphans {done.orphans}; next run {done.extracted}"
            )
            print(text + (f" {done.redone}" if done.redone else ""), flush=True)
            for problem in done.problems:
                print(f"    WRONG: {problem}", flush=True)
    return summary(rounds)


def summary(rounds: list[Round]) -> int:
    """The numbers of all rounds as one line of JSON; 1 when anything was wrong."""
    redone: collections.Counter[str] = collections.Counter()
    for one in rounds:
        redone.update(one.redone)
    document = {
        "kills": sum(one.killed for one in rounds),
        "ended before": sum(not one.killed for one in rounds),
        "victims": collections.Counter(one.victim for one in rounds if one.killed),
        "journaled at the kill": sum(one.journaled for one in rounds),
        "named, not journaled": sum(one.unjournaled for one in rounds),
        "orphans ended": sum(one.orphans for one in rounds),
        "unfinished files": sum(one.unfinished for one in rounds),
        "extracted by the next run": sum(one.extracted for one in rounds),
        "redone": dict(redone),
        "wrong": sum(bool(one.problems) for one in rounds),
    }
    print(json.dumps(document))
    return int(document["wrong"] != 0 or not document["kills"])

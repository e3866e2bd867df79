"""Jobs with real processes: found again, never started twice, stopped only when proven to be ours."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansible.module_utils.aerie.jobs.host_job import HostJob
from ansible.module_utils.aerie.shared import processes
from ansible.module_utils.aerie.shared.refusal import Refusal

# A program with the same command line as ours whose work is to wait: what is tested is the keeping of the job.
PROGRAM = """
import argparse, json, os, pathlib, signal, subprocess, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("command"); parser.add_argument("--spec"); parser.add_argument("--out")
parser.add_argument("--check", action="store_true")
given = parser.parse_args()
spec = json.load(sys.stdin) if given.spec == "-" else json.load(open(given.spec))
def answer(document, code=0):
    text = json.dumps(document)
    pathlib.Path(given.out).write_text(text) if given.out else print(text)
    sys.exit(code)
if given.check:
    if spec.get("plan_fails"):
        print("the plan's log", file=sys.stderr); answer({"failed": True, "msg": "planned badly"}, 1)
    answer({"changed": not spec.get("done"), "msg": "plan", "aerie": {"section": "extract"}})
if spec.get("worker"):
    script = "import os,time; print('worker', os.getpid(), flush=True); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", script], start_new_session=spec["worker"] == "own session")
pathlib.Path(spec["progress"]).write_text(json.dumps({"samples": 1, "total": 2}))
print("working", flush=True)
time.sleep(spec.get("seconds", 0))
answer({"failed": bool(spec.get("fails")), "msg": "done", "changed": True, "aerie": {"section": "extract"}},
       int(bool(spec.get("fails"))))
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


@pytest.fixture
def job(tmp_path):
    made = HostJob(str(tmp_path / "jobs/one"))
    yield made
    processes.end(processes.marked(made.marker), 0)


def start(job, program, check=False, **spec):
    return job.start(sys.executable, program, "extract", spec, {"GREETING": "hello"}, 30, check)


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_a_job_runs_to_its_end_and_gives_its_result(job, program):
    started = start(job, program, seconds=0)
    assert (started["changed"], started["running"], started["finished"]) == (True, True, False)
    assert "aerie" not in started
    ended = job.poll(20)
    assert (ended["finished"], ended["msg"], ended["aerie"]) == (True, "done", {"section": "extract"})
    assert ended["progress"] == {"samples": 1, "total": 2}
    assert ended["changed"] is False


def test_nothing_to_do_starts_nothing(job, program):
    result = start(job, program, done=True)
    assert (result["changed"], result["running"], result["finished"]) == (False, False, True)
    assert not job.record.exists()


def test_check_mode_leaves_no_trace(job, program):
    result = start(job, program, check=True)
    assert (result["changed"], result["running"]) == (True, False)
    assert not job.folder.exists()


def test_a_plan_that_fails_starts_nothing_and_shows_its_log(job, program):
    result = start(job, program, plan_fails=True)
    assert result["failed"]
    assert "planned badly" in result["msg"]
    assert "the plan's log" in result["stderr"]
    assert not job.record.exists()


def test_started_again_the_running_job_is_found(job, program):
    start(job, program, seconds=600)
    first = json.loads(job.record.read_text())
    # Another connection: nothing but the folder is shared.
    again = HostJob(str(job.folder))
    result = start(again, program, seconds=600)
    assert (result["changed"], result["running"]) == (False, True)
    assert json.loads(job.record.read_text()) == first
    wait_for(job.progress.exists)
    polled = again.poll(0)
    assert (polled["finished"], polled["progress"]) == (False, {"samples": 1, "total": 2})
    with pytest.raises(Refusal, match="other inputs"):
        start(again, program, seconds=601)


def test_the_job_is_in_a_session_of_its_own_and_carries_marker_and_environment(job, program):
    start(job, program, seconds=600)
    pid = json.loads(job.record.read_text())["process"]["pid"]
    assert os.getsid(pid) == pid
    # Empty for an instant, while the process becomes the job's program.
    wait_for(Path(f"/proc/{pid}/environ").read_bytes)
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert {b"GREETING=hello", f"AERIE_JOB={job.folder}".encode(), f"PYTHONPATH={program}".encode()} <= set(environment)


def test_a_failed_job_fails_with_the_end_of_its_log(job, program):
    start(job, program, fails=True)
    result = job.poll(20)
    assert result["failed"]
    assert "done" in result["msg"]
    assert "working" in result["stderr"]
    assert result["aerie"] == {"section": "extract"}


def test_a_killed_job_is_told_from_a_finished_one_and_can_start_again(job, program):
    start(job, program, seconds=600)
    wait_for(lambda: b"working" in job.log.read_bytes())
    # Whoever waits in vain is told what the job said last.
    assert job.poll(0)["msg"].endswith("Its log ends: working")
    os.kill(json.loads(job.record.read_text())["process"]["pid"], signal.SIGKILL)
    killed = job.poll(20)
    assert killed["failed"]
    assert re.search(r"ended without a result: it was killed.* Its log ends: working", killed["msg"])
    # One that ended itself has said so.
    job.progress.write_text(json.dumps({"phase": "failed"}))
    assert "ended without a result: it gave up. Running" in job.poll(20)["msg"]
    assert start(job, program, seconds=0)["running"]
    assert job.poll(20)["finished"]


@pytest.mark.parametrize("session", ["same session", "own session"])
def test_workers_of_a_killed_job_are_ended_before_the_next_start(job, program, session):
    start(job, program, seconds=600, worker=session)
    main = json.loads(job.record.read_text())["process"]["pid"]
    wait_for(lambda: len(processes.marked(job.marker)) == 2)
    os.kill(main, signal.SIGKILL)
    wait_for(lambda: processes.start_time(main) is None)
    orphans = processes.marked(job.marker)
    assert len(orphans) == 1
    result = start(job, program, seconds=0)
    assert (result["orphans_ended"], result["running"]) == (1, True)
    assert not any(processes.is_alive(orphan) for orphan in orphans)


def test_stop_ends_the_job_and_its_workers_and_no_other_process(job, program):
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        start(job, program, seconds=600, worker="own session")
        wait_for(lambda: len(processes.marked(job.marker)) == 2)
        planned = job.stop(5, check=True, remove=False)
        assert planned["changed"]
        assert len(processes.marked(job.marker)) == 2
        assert job.stop(5, check=False, remove=False)["changed"]
        assert processes.marked(job.marker) == []
        assert bystander.poll() is None
        assert not job.stop(5, check=False, remove=False)["changed"]
        assert job.stop(5, check=False, remove=True)["changed"]
        assert not job.folder.exists()
    finally:
        bystander.kill()
        bystander.wait()


def test_a_recycled_pid_is_not_taken_for_the_job(job, program):
    start(job, program, seconds=0)
    job.poll(20)
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        record = json.loads(job.record.read_text())
        record["process"]["pid"] = bystander.pid
        job.record.write_text(json.dumps(record))
        assert not job.stop(5, check=False, remove=False)["changed"]
        assert bystander.poll() is None
        record["process"].update(start_time=processes.start_time(bystander.pid), boot_id="another boot")
        job.record.write_text(json.dumps(record))
        assert not job.stop(5, check=False, remove=False)["changed"]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_polling_what_was_never_started_says_so(job):
    with pytest.raises(Refusal, match="no job was started"):
        job.poll(0)


def test_the_log_of_the_run_before_is_kept(job, program):
    for _ in range(2):
        start(job, program, seconds=0)
        job.poll(20)
    assert job.log.with_suffix(".log.1").exists()


def test_a_process_name_with_brackets_does_not_confuse():
    code = (
        "import ctypes,time; ctypes.CDLL(None).prctl(15, b'a) R 1 (b', 0, 0, 0); print(1, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert abs(processes.start_time(process.pid) - processes.start_time(os.getpid())) < 10**7
        process.kill()

"""The tag `stop` of the shipped playbooks, on a job with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible.module_utils.aerie.jobs.host_job import HostJob
from ansible.module_utils.aerie.shared import processes
from tests.controller.jobs.test_jobs import PROGRAM, wait_for

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def job(tmp_path):
    """A job as the local inventory names it, with a worker in a session of its own."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    made = HostJob(str(tmp_path / "jobs/demo"))
    made.start(sys.executable, str(program), "extract", {"seconds": 600, "worker": "own session"}, {}, 30, False)
    wait_for(lambda: len(processes.marked(made.marker)) == 2)
    yield made
    processes.end(processes.marked(made.marker), 0)


def run(tmp_path, *command):
    environment = {**os.environ, "AERIE_VAR": str(tmp_path), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    return subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, text=True, capture_output=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        [str(ROOT / "runner.py"), "--tags", "stop"],
        ["-m", "ansible", "playbook", str(ROOT / "site.yml"), "--tags", "stop"],
        # The job's name is the folder's, however that is written.
        [str(ROOT / "runner.py"), "--tags", "stop", "-e", "hidden_states_output_path=/nowhere/demo/"],
    ],
    ids=["runner.py", "ansible-playbook", "a slash at the end"],
)
def test_the_tag_stop_ends_the_job_and_nothing_else_is_done(tmp_path, job, command):
    done = run(tmp_path, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert processes.marked(job.marker) == []
    report = json.loads((tmp_path / "reports/latest/report.json").read_text())
    assert report["verdict"] == "pass"
    assert set(report["hosts"]["local"]["sections"]) <= {"inventory", "extract"}
    assert "ended processes" in report["hosts"]["local"]["sections"]["extract"]["data"]["summary"]


@pytest.mark.slow
def test_without_the_tag_nothing_is_stopped(tmp_path):
    listed = run(tmp_path, "-m", "ansible", "playbook", str(ROOT / "site.yml"), "--list-tasks")
    assert listed.returncode == 0
    assert "Start the extraction" in listed.stdout
    assert "End the extraction" not in listed.stdout

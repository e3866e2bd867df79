"""BR-46 c: a job that outlives the limit of the run which follows it, by the role's own tasks under Ansible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible.module_utils.aerie.jobs.host_job import HostJob
from ansible.module_utils.aerie.shared import processes

ROOT = Path(__file__).resolve().parents[3]
# A host program that plans work and then works for a minute.
PROGRAM = """
import json, sys, time
if "--check" in sys.argv:
    print(json.dumps({"changed": True, "msg": "plan"}))
else:
    time.sleep(60)
"""


@pytest.mark.slow
def test_br46c_a_job_that_outlives_the_limit_runs_on_and_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "aerie_host.pyz").write_text(PROGRAM)
    values = {
        "hidden_states_environment_path": str(Path(sys.executable).parent.parent), "hidden_states_home": str(tmp_path),
        "hidden_states_model_path": "/x", "hidden_states_data_path": "/x", "hidden_states_layer_ids": [1],
        "hidden_states_output_path": str(tmp_path / "long"), "hidden_states_max_length": 1,
        "hidden_states_timeout": 1, "hidden_states_poll_seconds": 1,
        "ansible_python_interpreter": sys.executable,
    }  # fmt: skip
    role = {"name": str(ROOT / "roles" / "hidden_states"), "tasks_from": "extract.yml"}
    tasks = [{"name": "Extract", "ansible.builtin.import_role": role}]
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": values, "tasks": tasks}]
    (tmp_path / "play.yml").write_text(json.dumps(play))

    def run() -> str:
        more = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "AERIE_REPORTS": str(tmp_path / "reports")}
        line = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", str(tmp_path / "play.yml")]
        done = subprocess.run(line, env={**os.environ, **more}, text=True, capture_output=True, check=False)
        assert done.returncode == 2, done.stdout
        return done.stdout

    job = HostJob(str(tmp_path / "jobs" / "long"))
    try:
        first = run()
        record = json.loads(job.record.read_text())
        pid = record["process"]["pid"]
        assert processes.is_alive(record["process"])
        assert f"still runs, process {pid}" in first
        assert "running the playbook again goes on waiting" in first
        # Again: no second job, and the same one is waited for.
        assert f"still runs, process {pid}" in run()
        assert json.loads(job.record.read_text()) == record
        assert len(processes.marked(job.marker)) == 1
    finally:
        assert processes.end(processes.marked(job.marker), 0) == []

"""The callback under the real ansible-playbook, over tiny playbooks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROBE = """
from ansible.module_utils.basic import AnsibleModule
def main():
    module = AnsibleModule(argument_spec={"answer": {"type": "dict"}, "fail": {"type": "bool"}})
    p = module.params
    (module.fail_json if p["fail"] else module.exit_json)(msg="probe", changed=True, **p["answer"])
main()
"""
GOOD = {"section": "gates", "checks": [{"name": "disk", "status": "pass", "found": "1", "wanted": "1"}], "data": {}}
BAD = {"section": "audit", "checks": [{"name": "grep", "status": "fail", "found": "0", "wanted": "1"}], "data": {}}


def play(
    tmp_path: Path, tasks: list[dict[str, Any]], hosts: str = "one", **env: str
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "library").mkdir(exist_ok=True)
    (tmp_path / "library" / "probe.py").write_text(PROBE)
    inventory = {
        "all": {
            "hosts": {"one": {}, "away": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}}
        }
    }
    inventory["all"]["vars"] = {"ansible_python_interpreter": sys.executable, "ansible_connection": "local"}  # type: ignore[assignment]
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": hosts, "gather_facts": False, "tasks": tasks}]))
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "AERIE_REPORTS": str(tmp_path / "reports"),
        **env,
    }
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.json", "play.yml"]
    return subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)


def latest(tmp_path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((tmp_path / "reports" / "latest" / "report.json").read_text())
    return value


def probe(answer: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "Probe", "probe": {"answer": answer, "fail": more.pop("fail", False)}, **more}


def test_sections_of_tasks_loops_and_failures_come_together(tmp_path: Path) -> None:
    done = play(
        tmp_path,
        [
            probe({"aerie": GOOD}),
            probe({"aerie": [GOOD, {**GOOD, "section": "imports"}]}),
            {
                **probe({}),
                "probe": {"answer": {"aerie": {**GOOD, "section": "{{ item }}"}}},
                "loop": ["truth", "judge"],
            },
            probe({"aerie": BAD}, fail=True),
        ],
    )
    assert done.returncode == 2, done.stdout + done.stderr
    report = latest(tmp_path)
    assert report["verdict"] == "fail"
    assert list(report["hosts"]["one"]["sections"]) == ["gates", "imports", "truth", "judge", "audit"]
    assert report["counts"] == {"checks": 5, "failed": 1, "warned": 0, "changed": 3}
    assert report["hosts"]["one"]["failures"] == [{"task": "Probe", "message": "probe"}]
    tasks = report["hosts"]["one"]["tasks"]
    assert [one["sections"] for one in tasks] == [["gates"], ["gates", "imports"], ["truth", "judge"], ["audit"]]
    assert all(
        one["name"] == "Probe" and one["changed"] and 0 < one["seconds"] < report["seconds"] for one in tasks[:3]
    )
    assert re.search(r"VERDICT: FAIL .*5 checks, 1 failed", done.stdout)


def test_unreachable_host_stands_in_the_report_beside_the_good_one(tmp_path: Path) -> None:
    done = play(tmp_path, [probe({"aerie": GOOD})], hosts="all")
    assert done.returncode == 4
    report = latest(tmp_path)
    assert report["verdict"] == "could not run"
    assert report["hosts"]["one"]["verdict"] == "pass"
    assert report["hosts"]["away"]["unreachable"]
    assert "away: could not run, unreachable" in done.stdout


def test_rescued_failure_is_no_failure(tmp_path: Path) -> None:
    rescued = {"block": [{"name": "Fail", "ansible.builtin.fail": {}}], "rescue": [probe({"aerie": GOOD})]}
    assert play(tmp_path, [rescued]).returncode == 0
    assert latest(tmp_path)["verdict"] == "pass"


def test_nothing_checked_is_no_pass(tmp_path: Path) -> None:
    done = play(tmp_path, [{"name": "Nothing", "ansible.builtin.debug": {"msg": "x"}}])
    assert latest(tmp_path)["verdict"] == "could not run"
    assert "nothing was checked" in done.stdout


IDLE = {"section": "audit", "checks": [{"name": "env", "status": "n/a", "found": "none yet", "wanted": "one"}]}
TAGS = {"name": "tags", "status": "pass", "found": "1", "wanted": "1"}
ASKED = {"section": "inventory", "checks": [TAGS], "data": {"hosts": ["one"]}}


@pytest.mark.parametrize(
    ("sections", "code", "verdict"),
    [
        ([ASKED], 2, "could not run"),
        ([ASKED, IDLE], 2, "could not run"),
        ([ASKED, IDLE, GOOD], 0, "pass"),
        # Not a run of the shipped playbooks: Ansible's own success stands.
        ([IDLE], 0, "could not run"),
    ],
)
def test_a_request_by_which_nothing_was_checked_fails(
    tmp_path: Path, sections: list[dict[str, Any]], code: int, verdict: str
) -> None:
    done = play(tmp_path, [probe({"aerie": sections})])
    assert (done.returncode, latest(tmp_path)["verdict"]) == (code, verdict), done.stdout + done.stderr
    assert ("nothing was checked" in done.stdout) == (verdict != "pass")


def test_progress_of_a_polled_job_is_one_line(tmp_path: Path) -> None:
    progress = {"samples": 3, "total": 9, "tokens_per_s": 1200, "seconds_left": 5}
    task = probe({"aerie": GOOD, "progress": progress}, register="r", until="r.attempts > 1", retries=2, delay=0)
    done = play(tmp_path, [task])
    assert "one: 3/9 samples, 1,200 tokens/s, 5 s left" in done.stdout


@pytest.mark.parametrize("broken", ["not writable", "odd result"])
def test_reporting_never_fails_a_run(tmp_path: Path, broken: str) -> None:
    if broken == "not writable":
        (tmp_path / "reports").write_text("a file where the folder should be")
        done = play(tmp_path, [probe({"aerie": GOOD})])
        assert "report: not written" in done.stdout
    else:
        odd = {"section": "gates", "checks": ["not a mapping"], "data": 3}
        done = play(tmp_path, [probe({"aerie": odd}), probe({"aerie": GOOD})])
        assert "report of this run is incomplete" in done.stderr + done.stdout
    assert done.returncode == 0

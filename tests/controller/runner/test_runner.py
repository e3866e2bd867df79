"""runner.py over real ansible-runner runs, with tiny playbooks and inventories."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROBE = """
from ansible.module_utils.basic import AnsibleModule
def main():
    module = AnsibleModule(argument_spec={"status": {"type": "str"}, "says": {"type": "str"}})
    p = module.params
    check = {"name": "probe", "status": p["status"], "found": p["says"], "wanted": "x", "remedy": "mend it"}
    aerie = {"section": "gates", "checks": [check], "data": {}}
    if p["says"] == "diff":
        module.exit_json(changed=True, aerie=aerie, diff={"before": "old\\n", "after": "new\\n"})
    (module.fail_json if p["status"] == "fail" else module.exit_json)(msg="probe", aerie=aerie)
main()
"""
PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {"name": "Probe", "probe": {"status": "{{ status | default('pass') }}", "says": "{{ says | default('') }}"}}
        ],
    }
]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A playbook with one probing task, and inventories with good and unreachable hosts."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "probe.py").write_text(PROBE)
    (tmp_path / "play.yml").write_text(json.dumps(PLAY))
    for names in ("one", "two", "one away"):
        hosts: dict[str, Any] = {name: {"ansible_connection": "local"} for name in names.split()}
        if "away" in hosts:
            hosts["away"] = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
        values = {"ansible_python_interpreter": sys.executable}
        (tmp_path / f"{names.replace(' ', '_')}.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": values}}))
    (tmp_path / "tmp").mkdir()
    return tmp_path


def command(*arguments: str, program: Path = ROOT / "runner.py") -> list[str]:
    return [sys.executable, str(program), "--playbook", "play.yml", *arguments]


def variables(site: Path) -> dict[str, str]:
    return {**os.environ, "AERIE_VAR": str(site / "var"), "TMPDIR": str(site / "tmp")}


@pytest.fixture
def run(site: Path) -> Run:
    def call(*arguments: str, program: Path = ROOT / "runner.py") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command(*arguments, program=program),
            cwd=site,
            env=variables(site),
            text=True,
            capture_output=True,
            check=False,
        )
        assert list((site / "tmp").iterdir()) == []
        return done

    return call


def reports(site: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in sorted((site / "var" / "reports").glob("2*/report.json"))]


@pytest.mark.slow
def test_br47_five_runs_in_a_row_with_other_hosts_and_variables(site: Path, run: Run) -> None:
    for number in range(5):
        host = ("one", "two")[number % 2]
        done = run("-i", f"{host}.json", "-e", f"says=run{number}", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        report = json.loads(done.stdout)
        assert list(report["hosts"]) == [host]
        assert report["hosts"][host]["sections"]["gates"]["checks"][0]["found"] == f"run{number}"
    assert len(reports(site)) == 5


@pytest.mark.slow
def test_br47_two_runs_at_the_same_moment(site: Path) -> None:
    pair = [
        subprocess.Popen(
            command("-i", "one.json", "-e", f"says={word}", "--json"),
            cwd=site, env=variables(site), text=True, stdout=subprocess.PIPE,
        )
        for word in ("left", "right")
    ]  # fmt: skip
    answers = [json.loads(process.communicate()[0]) for process in pair]
    assert [process.returncode for process in pair] == [0, 0]
    found = [answer["hosts"]["one"]["sections"]["gates"]["checks"][0]["found"] for answer in answers]
    assert found == ["left", "right"]
    assert len(reports(site)) == 2


@pytest.mark.slow
def test_br47_from_a_read_only_checkout(site: Path, run: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    checkout = tmp_path_factory.mktemp("checkout")
    for name in (
        "runner.py",
        "aerie_paths.py",
        "ansible.cfg",
        "callback_plugins",
        "module_utils",
        "host",
        "library",
        "action_plugins",
        "reporting",
    ):
        subprocess.run(["cp", "-r", ROOT / name, checkout / name], check=True)
    subprocess.run(["find", checkout, "-name", "__pycache__", "-prune", "-exec", "rm", "-rf", "{}", "+"], check=True)
    subprocess.run(["chmod", "-R", "a-w", checkout], check=True)

    def listing() -> list[str]:
        return sorted(str(p) for p in checkout.rglob("*") if "__pycache__" not in p.parts)

    before = listing()
    assert run("-i", "one.json", program=checkout / "runner.py").returncode == 0
    assert listing() == before
    subprocess.run(["chmod", "-R", "u+w", checkout], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "verdict"),
    [
        (["-i", "one.json", "-e", "status=fail"], 1, "fail"),
        (["-i", "one.json", "-e", "status=n/a"], 2, "could not run"),
        (["-i", "one_away.json"], 2, "could not run"),
        (["-i", "one_away.json", "-e", "status=fail"], 1, "fail"),
        (["-i", "one.json", "--limit", "nobody"], 2, "could not run"),
    ],
)
def test_br47_exit_code_says_the_verdict(site: Path, run: Run, arguments: list[str], code: int, verdict: str) -> None:
    done = run(*arguments, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == verdict
    assert reports(site)[0]["verdict"] == verdict


def test_plain_lines_without_a_terminal(run: Run) -> None:
    done = run("-i", "one.json")
    assert "\x1b" not in done.stdout
    assert "ok       one: Probe" in done.stdout
    assert "VERDICT: PASS   1 checks" in done.stdout


def test_a_diff_is_shown_when_asked_for(run: Run) -> None:
    wanted = ["-i", "one.json", "-e", "says=diff"]
    assert "-old\n+new" in run(*wanted, "--diff").stdout
    assert "-old" not in run(*wanted).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["-i", "nowhere.yml"],
        ["--no-such-option"],
        ["-i", "one.json", "-e", "@nofile.yml"],
        ["-i", "one.json", "-e", "{broken"],
        ["-i", "one.json", "-e", "status"],
    ],
)
def test_usage_ends_with_two_and_a_reason(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "runner.py: " in done.stderr


def test_a_password_in_a_malformed_value_is_not_repeated(run: Run) -> None:
    done = run("-i", "one.json", "-e", '{"ml_env_uv_environment": {"HTTPS_PROXY": "http://joe:hush@h"}')
    assert "neither JSON nor YAML" in done.stderr
    assert "ml_env_uv" in done.stderr
    assert "hush" not in done.stderr + done.stdout


def test_reason_of_an_early_end_is_told(run: Run) -> None:
    done = run("-i", "one.json", "--limit", "nobody")
    assert "no hosts to target" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_leaves_no_private_folder(site: Path, sent: signal.Signals) -> None:
    flag = site / "started"
    tasks = [{"name": "Wait", "ansible.builtin.command": {"cmd": f"sh -c 'touch {flag}; sleep 60'"}}]
    (site / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    process = subprocess.Popen(
        command("-i", "one.json"), cwd=site, env=variables(site), text=True, stdout=subprocess.PIPE
    )
    deadline = time.monotonic() + 30
    while not flag.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list((site / "tmp").glob("aerie-runner-*"))
    process.send_signal(sent)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "interrupted" in said
    assert list((site / "tmp").glob("aerie-runner-*")) == []


@pytest.mark.slow
def test_host_key_checking_stays_on(site: Path, run: Run) -> None:
    (site / "play.yml").write_text(json.dumps([{**PLAY[0], "tasks": [
        {"name": "Look", "ansible.builtin.assert": {"that": "lookup('ansible.builtin.config', 'HOST_KEY_CHECKING')"}},
        PLAY[0]["tasks"][0],  # type: ignore[index]
    ]}]))  # fmt: skip
    assert run("-i", "one.json").returncode == 0

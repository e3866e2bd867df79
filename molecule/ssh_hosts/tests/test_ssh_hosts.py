"""What three hosts over real SSH are left with, and what a run says of each. The order of the tests is the story."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import testinfra

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"])
LAB = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "lab"
REPORTS = Path(os.environ["AERIE_VAR"]) / "reports"
INVENTORIES = [f"--inventory={ROOT}/molecule/ssh_hosts/inventory", f"--inventory={LAB}/inventory.json"]
JOB = "/srv/aerie/jobs/tiny"

pytestmark = pytest.mark.skipif(not LAB.is_dir(), reason="no hosts were made: needs root, see the output of create")


@dataclass
class Run:
    """One run of runner.py: exit code, report, and what it said."""

    code: int
    report: dict[str, Any]
    said: str

    def messages(self, host: str) -> str:
        return " ".join(one["message"] for one in self.report["hosts"][host]["failures"])


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "runner.py"), "--json", *INVENTORIES, *arguments]


def finished(process: subprocess.Popen[str], seconds: float = 240) -> Run:
    out, said = process.communicate(timeout=seconds)
    return Run(process.returncode, json.loads(out), said)


def begin(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments: str) -> Run:
    return finished(begin(*arguments))


def lab(action: str, *arguments: str) -> str:
    tool = [sys.executable, str(ROOT / "tools" / "ssh_hosts.py"), action, str(LAB), *arguments]
    return subprocess.run(tool, capture_output=True, text=True, check=True).stdout


def module(name: str, arguments: str) -> dict[str, Any]:
    """The result of one module on the good host, as the user that SSH logs in."""
    ansible = [str(Path(sys.executable).parent / "ansible"), *INVENTORIES, "converging", "-m", name, "-a", arguments]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    line = [*ansible, "-e", "ansible_become=false", "--one-line"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    found: dict[str, Any]
    # What follows is the verdict of a run that checked nothing.
    found, _ = json.JSONDecoder().raw_decode(done.stdout.partition("=> ")[2])
    return found


@pytest.fixture(scope="module")
def good() -> Any:
    """The converged host, over SSH with its key checked, as root by sudo."""
    values = json.loads((LAB / "inventory.json").read_text())["all"]["hosts"]["converging"]
    return testinfra.get_host(
        f"ssh://{values['ansible_user']}@{values['ansible_host']}",
        ssh_identity_file=values["ansible_ssh_private_key_file"],
        ssh_extra_args=values["ansible_ssh_common_args"],
        sudo=True,
    )


@pytest.fixture(scope="module")
def converged() -> list[dict[str, Any]]:
    """The reports of Molecule's two converges over all hosts."""
    reports = [json.loads(path.read_text()) for path in sorted(REPORTS.glob("2*/report.json"))]
    return [one for one in reports if len(one["hosts"]) == 3][:2]


def test_one_host_is_as_wanted_though_two_are_not(converged: list[dict[str, Any]]) -> None:
    first, second = converged
    assert first["verdict"] == "fail"
    assert {name: host["verdict"] for name, host in first["hosts"].items()} == {
        "converging": "pass", "unreachable": "could not run", "full_disk": "fail",
    }  # fmt: skip
    sections = first["hosts"]["converging"]["sections"]
    assert {"gates", "provision", "patch", "audit", "imports"} <= set(sections)
    assert {one["state"] for one in sections["patch"]["data"]["patches"]} == {"applied"}
    assert (first["hosts"]["converging"]["changed"] > 0, second["counts"]["changed"]) == (True, 0)


def test_the_report_says_what_happened_to_the_others(converged: list[dict[str, Any]]) -> None:
    for report in converged:
        assert report["hosts"]["unreachable"]["unreachable"] is True
        assert "Connection refused" in report["hosts"]["unreachable"]["failures"][0]["message"]
        failed = [one for one in report["hosts"]["full_disk"]["sections"]["gates"]["checks"] if one["status"] == "fail"]
        assert [one["name"] for one in failed] == ["disk at /srv/aerie"]
        assert failed[0]["remedy"].startswith("free ")


def test_the_environment_over_ssh(good: Any) -> None:
    assert good.check_output("hostname") == "converging"
    assert good.file("/srv/aerie/ml-env").is_symlink
    manifest = json.loads(good.file("/srv/aerie/ml-env/.aerie/manifest.json").content_string)
    assert manifest["stack"] == "vllm-0.16-cpu"
    assert good.check_output("/srv/aerie/ml-env/bin/python -c 'import speculators; print(1)'") == "1"
    assert good.file("/srv/aerie/bin/uv").user == "root"
    # Pipelining: no module was written to the user's home.
    assert (
        good.run(
            "find /home/aerie-deployer/.ansible /root/.ansible/tmp -name 'AnsiballZ_*' -newer /etc/ssh/host_key"
        ).stdout
        == ""
    )


def test_only_an_unreachable_host_is_code_2_and_any_failed_check_is_1() -> None:
    unreachable = run("--tags=gates", "--limit=converging,unreachable")
    assert (unreachable.code, unreachable.report["verdict"]) == (2, "could not run")
    assert unreachable.report["hosts"]["converging"]["verdict"] == "pass"
    assert run("--tags=gates", "--limit=unreachable,full_disk").code == 1
    assert run("--tags=gates", "--limit=converging").code == 0


def test_another_host_key_is_refused(tmp_path: Path) -> None:
    values = json.loads((LAB / "inventory.json").read_text())["all"]["hosts"]["converging"]
    other = tmp_path / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    other.write_text(f"{values['ansible_host']} {(tmp_path / 'key.pub').read_text()}")
    arguments = values["ansible_ssh_common_args"].replace(str(LAB / "known_hosts"), str(other))
    # A connection that is kept open was checked when it was made.
    extra = {"ansible_ssh_common_args": arguments, "ansible_control_path_dir": str(tmp_path)}
    refused = run("--tags=gates", "--limit=converging", f"--extra-vars={json.dumps(extra)}")
    assert refused.code == 2
    assert "Host key verification failed" in refused.messages("converging")


def test_a_disk_that_runs_full_leaves_nothing_behind() -> None:
    full = run("--tags=provision", "--skip-tags=gates", "--limit=full_disk")
    assert full.code == 1
    assert "No space left on device" in full.messages("full_disk")
    assert lab("run", "full_disk", "ls -A /srv/aerie/ml-env.d; ls -A /srv/aerie").split() == [
        ".lock",
        "bin",
        "ml-env.d",
    ]


def provision_from(bundle: str) -> Run:
    values = {
        "ml_env_source": "bundle", "ml_env_bundle": bundle, "ml_env_path": "/srv/aerie/gapped",
        "ml_env_lock": f"{ROOT}/molecule/ssh_hosts/small.lock",
        # The other cache has all the wheels.
        "ml_env_uv_environment": {"UV_CACHE_DIR": "/srv/aerie/empty-cache"},
    }  # fmt: skip
    arguments = ("--tags=provision", "--skip-tags=gates", "--limit=converging", f"--extra-vars={json.dumps(values)}")
    return run(*arguments)


def test_a_host_without_a_route_is_provisioned_from_a_bundle(good: Any) -> None:
    assert good.check_output("ip route show default") == ""
    bundle = f"{LAB}.site/bundle"
    damaged = "/srv/aerie/bundle"
    good.check_output(f"cp -r {bundle} {damaged}")
    wheel = good.check_output(f"cd {damaged} && ls wheels/jinja2-*")
    good.check_output(f"truncate --size=-1 {damaged}/{wheel}")
    refused = provision_from(damaged)
    assert refused.code == 1
    assert f"bundle {wheel}" in refused.messages("converging")
    assert not good.file("/srv/aerie/gapped").exists
    assert (provision_from(bundle).code, provision_from(bundle).report["counts"]["changed"]) == (0, 0)
    assert good.check_output("/srv/aerie/gapped/bin/python -c 'import jinja2, markupsafe._speedups; print(1)'") == "1"


@pytest.fixture(scope="module")
def job(good: Any) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A run that extracts, and the job that it started on the host, held up so that it outlives what is done to it."""
    process = begin("--tags=extract", "--limit=converging")
    try:
        deadline = time.monotonic() + 60
        while not good.file(f"{JOB}/job.json").exists:
            assert process.poll() is None, finished(process).said
            assert time.monotonic() < deadline
        record = json.loads(good.file(f"{JOB}/job.json").content_string)
        good.check_output(f"kill -STOP {record['process']['pid']}")
        yield process, record
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate()


def test_polling_outlives_an_absent_sshd(job: tuple[subprocess.Popen[str], dict[str, Any]]) -> None:
    process, _ = job
    lab("sshd-down", "converging")
    time.sleep(8)
    assert process.poll() is None
    lab("sshd-up", "converging")


def test_another_user_is_told_so_and_starts_no_second_job(job: tuple[subprocess.Popen[str], dict[str, Any]]) -> None:
    _, record = job
    other = run("--tags=extract", "--limit=converging", "--extra-vars={ansible_become: false}")
    assert other.code == 1
    assert "run as the user that provisioned it (ansible_become_user)" in other.messages("converging")
    # The same with a Python that this user can run: the job's lock is not his, its record he may read.
    started = module("host_job", f"job_dir={JOB} python=/usr/bin/python3 program=/srv/aerie/aerie_host.pyz spec={{}}")
    assert f"its job runs, process {record['process']['pid']}. Remedy: run as that user" in started["msg"]
    polled = module("host_job", f"job_dir={JOB} state=polled wait=0")
    assert (polled["running"], polled["finished"]) == (True, False)


def test_the_job_is_found_by_another_home_and_ends_once(
    good: Any, job: tuple[subprocess.Popen[str], dict[str, Any]]
) -> None:
    process, record = job
    second = begin("--tags=extract", "--limit=converging", "--extra-vars={ansible_become_flags: '-n HOME=/tmp'}")
    time.sleep(6)
    assert good.check_output("pgrep -fc '^/srv/aerie/ml-env/bin/python .*aerie_host.pyz extract'") == "1"
    good.check_output(f"kill -CONT {record['process']['pid']}")
    first_run, second_run = finished(process), finished(second)
    assert (first_run.code, second_run.code) == (0, 0), first_run.said + second_run.said
    assert json.loads(good.file(f"{JOB}/job.json").content_string) == record
    assert not good.file(f"{JOB}/job.log.1").exists
    for one in (first_run, second_run):
        assert one.report["hosts"]["converging"]["sections"]["judge"]["checks"]
    assert good.check_output("ls /srv/aerie/hidden_states/tiny/data_*.pt | wc -l") == "40"
    assert run("--tags=extract", "--limit=converging").report["counts"]["changed"] == 0

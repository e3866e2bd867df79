"""BR-30: molecule runs every scenario with its own driver, and nothing beside what the controller's lock brings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
SCENARIOS = {path.parent.name: path for path in (ROOT / "molecule").glob("*/molecule.yml")}


def test_br30_one_molecule_and_no_plugin_of_a_driver_is_locked() -> None:
    pins = re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    named = {name for name, _ in pins if "molecule" in name or name in ("docker", "podman")}
    assert named == {"molecule"}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_br30_every_stage_that_a_scenario_names_is_there_to_run(name: str) -> None:
    """Molecule passes over a stage without a playbook; verification is testinfra's, idempotence the converge again."""
    scenario = yaml.safe_load(SCENARIOS[name].read_text())
    stages = scenario.get("scenario", {}).get("test_sequence", [])
    folder = SCENARIOS[name].parent
    for stage in set(stages) - {"idempotence", "verify"}:
        assert (folder / f"{stage}.yml").is_file(), f"{name} names {stage} and has no {stage}.yml"
    assert list((folder / "tests").glob("test_*.py"))


@pytest.mark.slow
def test_br30_every_scenario_is_found_with_the_default_driver() -> None:
    bin_ = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    command = [str(bin_ / "molecule"), "list", "--format", "plain"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    found = {words[3]: words[1] for line in done.stdout.splitlines() if len(words := line.split()) == 6}
    assert found == dict.fromkeys(SCENARIOS, "default")

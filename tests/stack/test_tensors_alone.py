"""`--tags tensors` alone, on a host with an environment: data made by others, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.stack
ROOT = Path(__file__).resolve().parents[2]
MAKE = """
import sys
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
from tests.ml_environment.made_folder import MadeFolder
folder = MadeFolder(Path(sys.argv[3]), [5, 9, 12])
folder.manifest.unlink()
"""


class Judged:
    """One run of the runner and its report."""

    def __init__(self, home: Path, **variables: Any) -> None:
        # Nothing of the demonstration is there: neither its model nor an extraction.
        given = {"ml_env_path": os.environ["AERIE_TEST_ENV"], "hidden_states_model_path": "/not/here", **variables}
        done = subprocess.run(
            [sys.executable, "runner.py", "--json", "--tags", "tensors", "-e", json.dumps(given)],
            cwd=ROOT,
            env={**os.environ, "AERIE_VAR": str(home)},
            capture_output=True,
            text=True,
        )
        self.code = done.returncode
        host = json.loads(done.stdout)["hosts"]["local"]
        self.message = " ".join(failure["message"] for failure in host["failures"])
        self.checks = {check["name"]: check for check in host["sections"].get("judge", {"checks": []})["checks"]}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "theirs"
    python = Path(os.environ["AERIE_TEST_ENV"]) / "bin/python"
    subprocess.run([python, "-B", "-c", MAKE, str(ROOT), str(ROOT / "host"), str(path)], check=True)
    return path


def test_data_made_by_others(theirs: Path, tmp_path: Path) -> None:
    judged = Judged(tmp_path, hidden_states_output_path=str(theirs), hidden_states_judge_layer_ids=[])
    assert judged.code == 0
    assert judged.checks["finite"]["status"] == "pass"
    assert judged.checks["sha256 as in the manifest"]["status"] == "n/a"
    assert judged.checks["the layers asked, in order"]["found"] == "4 tensors per file"
    assert not (tmp_path / "models").exists()
    assert not (tmp_path / "hidden_states").exists()


def test_damage_fails(theirs: Path, tmp_path: Path) -> None:
    (theirs / "data_3.pt").write_bytes(b"PK\x03\x04 cut off")
    judged = Judged(tmp_path, hidden_states_output_path=str(theirs), hidden_states_layer_ids=[1, 2, 3, 5])
    (theirs / "data_3.pt").unlink()
    assert judged.code == 1
    assert judged.checks["readable with weights_only"]["found"].startswith("data_3.pt: is cut off")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    judged = Judged(tmp_path, hidden_states_output_path=str(tmp_path / "nothing"))
    assert judged.code == 1
    assert f"there is no folder {tmp_path}/nothing" in judged.message


def test_a_missing_environment_is_refused(theirs: Path, tmp_path: Path) -> None:
    judged = Judged(tmp_path, hidden_states_output_path=str(theirs), ml_env_path=str(tmp_path / "env"))
    assert judged.code == 1
    assert "provision the environment first" in judged.message

"""Going back to kept environments, with the real uv and under the real playbook."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ansible.module_utils.aerie.environment import rollback
from ansible.module_utils.aerie.environment.converge import converge
from ansible.module_utils.aerie.environment.demand import Demand
from ansible.module_utils.aerie.shared.refusal import Refusal

from .conftest import UV, Wheels, job_in, make_lock
from .test_build import names, site, snapshot

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three environments, the last one current."""
    folder = tmp_path_factory.mktemp("kept")
    wheels = Wheels(folder / "wheels")
    sources = {"UV_FIND_LINKS": str(wheels.folder), "UV_OFFLINE": "1", "UV_CACHE_DIR": str(folder / "cache")}
    for number in range(3):
        lock = make_lock(alpha=wheels.pin("alpha", f"1.{number}"))
        made = Demand(folder / "env", lock, "tiny", sys.executable, folder, UV, "vllm", variables=sources)
        environment = converge(made, check_mode=False).environment
        assert environment is not None
        # Names sort by the second in which an environment was made.
        environment.rename(environment.with_name(f"20260101T00000{number}Z-{environment.name[-8:]}"))
        (folder / "env").unlink()
        (folder / "env").symlink_to(f"env.d/{names(folder / 'env.d')[-1]}")
    return folder


@pytest.fixture
def three(built: Path, tmp_path: Path) -> list[str]:
    """A copy of them; their names, the oldest first."""
    shutil.copytree(built / "env.d", tmp_path / "env.d", symlinks=True)
    (tmp_path / "env").symlink_to((built / "env").readlink())
    return names(tmp_path / "env.d")


def back(tmp_path: Path, name: str = "", check_mode: bool = False) -> tuple[str, bool]:
    chosen, changed = rollback.go_back(tmp_path / "env", name, "vllm", check_mode)
    return chosen.name, changed


def version(tmp_path: Path) -> str:
    return (site(tmp_path / "env") / "alpha.py").read_text()


def test_the_one_before_is_taken_and_then_the_one_before_that(three: list[str], tmp_path: Path) -> None:
    before = snapshot(tmp_path / "env.d")
    assert back(tmp_path, check_mode=True) == (three[1], True)
    assert "1.2" in version(tmp_path)
    assert back(tmp_path) == (three[1], True)
    assert "1.1" in version(tmp_path)
    assert back(tmp_path) == (three[0], True)
    with pytest.raises(Refusal, match=f"none older than {three[0]}; kept are: {three[2]}, {three[1]}"):
        back(tmp_path)
    assert snapshot(tmp_path / "env.d") == before


def test_any_may_be_named_and_the_current_one_is_no_change(three: list[str], tmp_path: Path) -> None:
    assert back(tmp_path, three[0]) == (three[0], True)
    assert back(tmp_path, three[0]) == (three[0], False)
    assert back(tmp_path, three[2]) == (three[2], True)
    assert "1.2" in version(tmp_path)


def test_a_name_that_is_not_there_is_refused_with_those_that_are(three: list[str], tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=f"no environment nope; kept are: {three[1]}, {three[0]}"):
        back(tmp_path, "nope")
    assert "1.2" in version(tmp_path)


@pytest.mark.parametrize("how", ["extra", "python"])
def test_one_that_is_no_longer_as_installed_is_refused(three: list[str], tmp_path: Path, how: str) -> None:
    damaged = tmp_path / "env.d" / three[1]
    if how == "extra":
        (site(damaged) / "gamma-1.0.dist-info").mkdir()
    else:
        (damaged / "bin" / "python").unlink()
    with pytest.raises(Refusal, match=f"{three[1]}: 1 differences from its lock"):
        back(tmp_path)
    assert "1.2" in version(tmp_path)


def test_what_is_found_wrong_after_the_swap_is_swapped_back(
    three: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def second_time(environment: Path, _: str) -> None:
        looks.append(environment)
        if len(looks) == 2:
            raise Refusal("x", "y", "z")

    monkeypatch.setattr(rollback, "require_as_locked", second_time)
    with pytest.raises(Refusal):
        back(tmp_path)
    assert "1.2" in version(tmp_path)


def test_not_while_a_job_runs_in_it(three: list[str], tmp_path: Path) -> None:
    with job_in(tmp_path / "env") as pid:
        for check_mode in (True, False):
            with pytest.raises(Refusal, match=str(pid)):
                back(tmp_path, check_mode=check_mode)
    assert "1.2" in version(tmp_path)


@pytest.mark.slow
def test_the_playbook_names_those_kept_and_goes_back(three: list[str], tmp_path: Path) -> None:
    values = {
        **dict.fromkeys(("aerie_home", "hidden_states_model_path", "hidden_states_data_path"), "/x"),
        "hidden_states_output_path": "/x", "hidden_states_layer_ids": [1], "hidden_states_max_length": 1,
        "aerie_stack_name": "vllm-0.16-cuda", "ml_env_path": str(tmp_path / "env"), "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
    }  # fmt: skip
    (tmp_path / "hosts.json").write_text(json.dumps({"extraction_hosts": {"hosts": {"h": values}}}))

    def play(*arguments: str) -> subprocess.CompletedProcess[str]:
        more = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "AERIE_REPORTS": str(tmp_path / "reports")}
        line = [sys.executable, "-m", "ansible", "playbook", "-i", str(tmp_path / "hosts.json")]
        return subprocess.run(
            [*line, str(ROOT / "playbooks/rollback.yml"), *arguments],
            cwd=tmp_path, env={**os.environ, **more}, text=True, capture_output=True, check=False,
        )  # fmt: skip

    done = play("-e", "rollback_what=environment")
    assert done.returncode == 0, done.stdout
    assert "1.1" in version(tmp_path)
    report = json.loads((tmp_path / "reports" / "latest" / "report.json").read_text())
    section = report["hosts"]["h"]["sections"]["provision"]
    assert [one["name"] for one in section["data"]["kept"]] == three[::-1]
    assert section["data"]["moves"]["changed"] == ["alpha 1.2 -> 1.1"]
    # A name alone does not say what to roll back: the patches stay as they are.
    assert play("-e", f"rollback_environment={three[2]}").returncode == 2

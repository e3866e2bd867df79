"""The life of a patched environment, told by the playbooks that operators use. The order of the tests is the story."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"])
WORK = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
ENV = WORK / "env"
SERIES = ROOT / "files/patches/speculators-0.3.0"
GENERATOR = "speculators/data_generation/vllm_hidden_states_generator.py"


@dataclass
class Run:
    """One run of a playbook."""

    code: int
    output: str
    report: dict[str, object]

    @property
    def changed(self) -> int:
        found = re.search(r"changed=(\d+)", self.output)
        assert found, self.output
        return int(found.group(1))

    @property
    def states(self) -> dict[str, str]:
        section = self.report["hosts"]["local"]["sections"]["patch"]  # type: ignore[index]
        return {entry["id"]: entry["state"] for entry in section["data"]["patches"]}


def play(playbook: str, *arguments: str, series: Path = SERIES, **variables: object) -> Run:
    reports = WORK / "reports"
    given = {"ml_env_path": str(ENV), "package_patches_verify_imports": False, **variables}
    if playbook == "patch":
        given["package_patches_series"] = [str(series)]
    command = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        f"playbooks/{playbook}.yml",
        "-i",
        "inventory/local",
    ]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "AERIE_REPORTS": str(reports)}
    for name in [name for name in environment if name.startswith("ANSIBLE_") and name != "ANSIBLE_CONFIG"]:
        del environment[name]
    done = subprocess.run(
        [*command, "-e", json.dumps(given), *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads((reports / "latest" / "report.json").read_text())
    return Run(done.returncode, done.stdout + done.stderr, report)


def site() -> Path:
    return next((ENV / "lib").glob("python3*/site-packages"))


def digests() -> dict[str, str]:
    """The sha256 of every file of site-packages."""
    files = [path for path in site().rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(site()).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def listed() -> dict[str, str]:
    """What series.yml says the pristine digests are."""
    files: dict[str, str] = yaml.safe_load((SERIES / "series.yml").read_text())["files"]
    return files


def yaml_ids(series: Path) -> list[str]:
    return [entry["id"] for entry in yaml.safe_load((series / "series.yml").read_text())["patches"]]


@pytest.fixture(scope="module")
def patched() -> dict[str, str]:
    """The digests that converge left, the right ones of the whole series."""
    return digests()


def test_converge_patched_every_file_of_the_series(patched: dict[str, str]) -> None:
    assert listed()
    for path, pristine in listed().items():
        assert patched[path] != pristine


@pytest.mark.usefixtures("patched")
def test_check_mode_foretells_and_changes_nothing() -> None:
    assert play("rollback").code == 0
    pristine = digests()
    for path, digest in listed().items():
        assert pristine[path] == digest
    foretold = play("patch", "--check", "--diff")
    assert (foretold.code, foretold.changed) == (0, 1)
    assert set(foretold.states.values()) == {"would apply"}
    assert f"+++ after: {GENERATOR}" in foretold.output
    assert digests() == pristine


def test_apply_shows_where_each_patch_is_and_a_second_run_is_calm(patched: dict[str, str]) -> None:
    applied = play("patch")
    assert (applied.code, applied.changed) == (0, 1)
    assert re.search(r"ok   0001-\S+: .* in speculators/\S+: at line \d+", applied.output)
    assert digests() == patched
    again = play("patch")
    assert (again.code, again.changed) == (0, 0)
    assert again.states == dict.fromkeys(yaml_ids(SERIES), "applied")


def test_an_edited_series_converges_and_back(patched: dict[str, str]) -> None:
    edited = WORK / "speculators-0.3.0"
    shutil.rmtree(edited, ignore_errors=True)
    shutil.copytree(SERIES, edited)
    document = yaml.safe_load((edited / "series.yml").read_text())
    last = document["patches"].pop()
    (edited / f"{last['id']}.patch").unlink()
    touched = {
        line[6:] for patch in edited.glob("*.patch") for line in patch.read_text().splitlines() if line[:6] == "+++ b/"
    }
    document["files"] = {path: digest for path, digest in document["files"].items() if path in touched}
    (edited / "series.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    run = play("patch", series=edited)
    assert (run.code, run.changed) == (0, 1)
    assert last["id"] not in run.states
    assert digests() != patched
    back = play("patch")
    assert (back.code, back.changed) == (0, 1)
    assert digests() == patched


def test_drift_is_refused_by_name_and_restored_on_request(patched: dict[str, str]) -> None:
    file = site() / GENERATOR
    # As people do it: open the file and take one edit of ours back. A copy first: never write into uv's cache.
    text = file.read_text().replace("enable_prefix_caching=False", "enable_prefix_caching=True")
    file.unlink()
    file.write_text(text)
    refused = play("patch")
    assert refused.code == 2
    assert GENERATOR in refused.output
    assert "0004-prefix-caching-off (its probe" in refused.output
    assert patched[GENERATOR] in refused.output
    assert "enable_prefix_caching=True" in refused.output
    assert file.read_text() == text
    restored = play("patch", package_patches_on_drift="restore")
    assert (restored.code, restored.changed) == (0, 1)
    assert digests() == patched


def test_a_reinstall_by_hand_is_seen(patched: dict[str, str]) -> None:
    uv = Path(sys.executable).parent / "uv"
    command = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--reinstall",
        f"--python={ENV}/bin/python",
        "speculators==0.3.0",
    ]
    subprocess.run(command, check=True)
    assert digests()[GENERATOR] == listed()[GENERATOR]
    assert play("patch").changed == 1
    assert digests() == patched


def test_failed_verification_rolls_back_and_says_so(patched: dict[str, str]) -> None:
    play("rollback")
    pristine = digests()
    failed = play("patch", package_patches_verify_imports=True)
    assert failed.code == 2
    assert "Everything was rolled back" in failed.output
    assert "ModuleNotFoundError" in failed.output
    assert failed.report["verdict"] == "fail"
    assert digests() == pristine
    kept = play("patch", package_patches_verify_imports=True, package_patches_on_failure="keep")
    assert kept.code == 2
    assert "The patches were kept" in kept.output
    assert digests() == patched


def test_rollback_restores_every_byte(patched: dict[str, str]) -> None:
    run = play("rollback")
    assert (run.code, run.changed) == (0, 1)
    now = digests()
    for path, digest in listed().items():
        assert now[path] == digest
    record = (site() / "speculators-0.3.0.dist-info/RECORD").read_text()
    assert "layer_capture" not in record
    assert set(patched) - set(now) == {
        module["target"] for module in yaml.safe_load((SERIES / "series.yml").read_text())["modules"]
    }
    assert play("rollback").changed == 0
    assert not [path for path in ENV.rglob("*") if path.suffix in (".rej", ".orig", ".tmp")]

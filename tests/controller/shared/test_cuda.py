"""Which GPUs run which code, and which compiler knows them: on recorded facts of hosts that we do not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerie_host.shared import cuda

SM_90_WHEEL = ["sm_75", "sm_80", "sm_86", "sm_90"]
CU128_WHEEL = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


@pytest.mark.parametrize(
    ("built", "capability", "runs"),
    [
        (CU128_WHEEL, (12, 0), True),
        (CU128_WHEEL, (12, 1), True),
        (CU128_WHEEL, (8, 9), True),
        (CU128_WHEEL, (7, 0), False),
        (SM_90_WHEEL, (12, 0), False),
        ([*SM_90_WHEEL, "compute_90"], (12, 0), True),
        (["sm_90a"], (9, 0), True),
        (["sm_90a"], (9, 1), False),
        (["sm_100f"], (10, 3), True),
        (["sm_120"], (12, 0), True),
        (["nonsense"], (12, 0), False),
        ([], (12, 0), False),
    ],
)
def test_which_builds_run_on_which_gpu(built: list[str], capability: tuple[int, int], runs: bool) -> None:
    assert cuda.runs_on(cuda.text(capability), built) is runs


@pytest.mark.parametrize(
    ("capability", "runs"), [("9.0", True), ("9.1", True), ("8.9", True), ("8.0", False), ("10.0", False)]
)
def test_architectures_may_be_written_as_capabilities(capability: str, runs: bool) -> None:
    assert cuda.runs_on(capability, ["8.6", "9.0"]) is runs


def test_br_22_recorded_sm_120_with_a_wheel_up_to_9_0_is_refused() -> None:
    check = cuda.architecture_check("architectures", [("12.0", "RTX PRO 6000")] * 8, SM_90_WHEEL, "torch")
    assert check.status == "fail"
    assert check.found == "12.0 (RTX PRO 6000)"
    assert "sm_120 (CUDA 12.8 or newer)" in check.remedy


def test_no_gpu_at_all_is_refused() -> None:
    assert cuda.architecture_check("architectures", [], CU128_WHEEL, "torch").status == "fail"


@pytest.mark.parametrize(
    ("path", "release", "cuda_version", "capabilities", "status"),
    [
        ("", "", "12.8", ["12.0"], "warn"),
        ("/usr/bin/nvcc", "12.8", "12.8", ["12.0"], "pass"),
        ("/usr/bin/nvcc", "13.0", "12.8", [], "pass"),
        ("/usr/bin/nvcc", "12.4", "12.8", ["9.0"], "warn"),
        # Older than the stack's CUDA is one reason, not to know one of the GPUs is another.
        ("/usr/bin/nvcc", "12.4", "12.4", ["9.0"], "pass"),
        ("/usr/bin/nvcc", "12.4", "12.4", ["9.0", "12.0"], "warn"),
        ("/usr/bin/nvcc", "", "12.8", ["12.0"], "warn"),
    ],
)
def test_br_23_recorded_hosts_without_a_fitting_nvcc_are_told_so(
    path: str, release: str, cuda_version: str, capabilities: list[str], status: str
) -> None:
    check = cuda.compiler_check("CUDA compiler", path, release, cuda_version, capabilities)
    assert check.status == status
    assert ("VLLM_USE_FLASHINFER_SAMPLER=0" in check.remedy) == (status == "warn")


@pytest.mark.parametrize(("says", "release"), [("release 12.8, V12.8.93", "12.8"), ("no number", "")])
def test_the_compiler_is_found_by_cuda_home_and_asked_for_its_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, release: str
) -> None:
    program = tmp_path / "bin" / "nvcc"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, {says}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert cuda.find_nvcc() == str(program)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert cuda.nvcc_release(str(program)) == release

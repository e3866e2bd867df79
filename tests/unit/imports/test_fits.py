"""How compiled parts fit: the comparisons on recorded facts of hosts that we do not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerie_host.imports import compatibility

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
    assert compatibility.covers(built, capability) is runs


def test_br_22_recorded_sm_120_with_a_wheel_up_to_9_0_is_refused() -> None:
    status, found, _, remedy = compatibility.judge_architectures(SM_90_WHEEL, [(12, 0)] * 8)
    assert status == "fail"
    assert "12.0" in found
    assert "sm_120" in remedy


def test_no_gpu_at_all_is_refused() -> None:
    assert compatibility.judge_architectures(CU128_WHEEL, [])[0] == "fail"


@pytest.mark.parametrize(
    ("asked", "torch_cuda", "device", "status"),
    [
        ({"_C.abi3.so": {"12"}, "_moe_C.abi3.so": {"12"}}, "12.8", "cuda", "pass"),
        ({"_C.abi3.so": {"13"}}, "12.8", "cuda", "fail"),
        ({"_C.abi3.so": {"12"}, "_moe_C.abi3.so": {"13"}}, "12.8", "cuda", "fail"),
        ({"_C.abi3.so": set()}, "12.8", "cuda", "fail"),
        ({"_C.abi3.so": {"12"}}, None, "cuda", "fail"),
        ({}, "12.8", "cuda", "fail"),
        ({"_C.abi3.so": set()}, "12.8", "cpu", "pass"),
        ({"_C.abi3.so": {"12"}}, "12.8", "cpu", "fail"),
    ],
)
def test_br_20_recorded_binaries_against_torchs_cuda(
    asked: dict[str, set[str]], torch_cuda: str | None, device: str, status: str
) -> None:
    assert compatibility.judge_cuda(asked, torch_cuda, device)[0] == status


@pytest.mark.parametrize(
    ("broken", "status"), [([], "pass"), (["cumem_allocator"], "warn"), (["_C"], "fail"), (["_C", "_moe_C"], "fail")]
)
def test_compiled_parts_that_do_not_load_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: list[str], status: str
) -> None:
    package = tmp_path / "engine_of_a_test"
    package.mkdir()
    loaded = []
    for name in ("_C", "_moe_C", "cumem_allocator"):
        (package / f"{name}.abi3.so").write_bytes(b"\x7fELF, and then nothing")

    def load(module: str) -> None:
        name = module.split(".")[-1]
        if name in broken:
            raise ImportError(f"lib{name}.so: undefined symbol\nand more")
        loaded.append(module)

    monkeypatch.setattr(compatibility, "import_module", load)
    found = compatibility.compiled(package)
    assert found[0] == status
    assert all(f"{name}: lib{name}.so: undefined symbol" in found[1] for name in broken)
    assert len(loaded) == 3 - len(broken)


def test_a_compiled_part_that_is_no_binary_does_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "engine_cut_short"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_C.abi3.so").write_bytes(b"\x7fELF, and then nothing")
    monkeypatch.syspath_prepend(tmp_path)
    status, found, _, remedy = compatibility.compiled(package)
    assert status == "fail"
    assert "none loaded; _C: " in found
    assert remedy


def test_the_cuda_major_is_read_from_library_names() -> None:
    assert compatibility.cuda_majors(["libc.so.6", "libcudart.so.13", "libtorch_cuda.so", "libcudart.so.12"]) == {
        "12",
        "13",
    }


@pytest.mark.parametrize(
    ("versions", "status"),
    [
        ({}, "n/a"),
        ({"flashinfer-python": "0.6.3"}, "pass"),
        ({"flashinfer-python": "0.6.3", "flashinfer-cubin": "0.6.3", "flashinfer-jit-cache": "0.6.3+cu128"}, "pass"),
        ({"flashinfer-python": "0.6.3", "flashinfer-cubin": "0.6.1"}, "fail"),
    ],
)
def test_br_24_recorded_flashinfer_versions(versions: dict[str, str], status: str) -> None:
    verdict = compatibility.flashinfer(versions or None) if versions else compatibility.flashinfer({})
    assert verdict[0] == status
    assert all(f"{name} {version}" in verdict[1] for name, version in versions.items())


@pytest.mark.parametrize(
    ("path", "version", "status"),
    [(None, None, "warn"), ("/usr/bin/nvcc", (12, 8), "pass"), ("/usr/bin/nvcc", (12, 4), "warn"),
     ("/usr/bin/nvcc", None, "warn")],
)  # fmt: skip
def test_br_23_recorded_hosts_without_a_fitting_nvcc_are_told_so(
    path: str | None, version: tuple[int, int] | None, status: str
) -> None:
    verdict = compatibility.judge_compiler(path, version, (12, 0))
    assert verdict[0] == status
    assert ("VLLM_USE_FLASHINFER_SAMPLER=0" in verdict[3]) == (status == "warn")

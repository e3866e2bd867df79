"""How compiled parts fit: the comparisons on recorded facts of hosts that we do not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerie_host.imports import compatibility

NAME = "a check"


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
    assert compatibility.judge_cuda(NAME, asked, torch_cuda, device).status == status


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
    found = compatibility.compiled(NAME, package)
    assert found.status == status
    assert all(f"{name}: lib{name}.so: undefined symbol" in found.found for name in broken)
    assert len(loaded) == 3 - len(broken)


def test_a_compiled_part_that_is_no_binary_does_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "engine_cut_short"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_C.abi3.so").write_bytes(b"\x7fELF, and then nothing")
    monkeypatch.syspath_prepend(tmp_path)
    check = compatibility.compiled(NAME, package)
    assert check.status == "fail"
    assert "none loaded; _C: " in check.found
    assert check.remedy


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
    check = compatibility.flashinfer(NAME, versions)
    assert check.status == status
    assert all(f"{name} {version}" in check.found for name, version in versions.items())

"""Which wheels the Python and the machine of a stack can install, by their file names alone."""

from __future__ import annotations

import pytest

from ansible.module_utils.aerie.environment.wheel_name import parse_name


def fits(tags: str, python: str = ">=3.12,<3.13") -> bool:
    name = parse_name(f"vllm-0.16.0+g7291d1b28.cu129-1-{tags}.whl")
    assert name is not None
    return name.runs_on("x86_64", python, "2.31")


@pytest.mark.parametrize(
    ("tags", "good"),
    [
        ("cp38-abi3", True), ("cp312-abi3", True), ("cp313-abi3", False), ("cp312-cp312", True), ("cp311-cp311", False),
        ("py3-none", True), ("py2.py3-none", True), ("py2-none", False), ("py312-none", True), ("py313-none", False),
        ("cp311.cp312-cp311.cp312", True), ("cp312-cp312t", False), ("pp310-pypy310_pp73", False),
    ],
)  # fmt: skip
def test_the_tags_of_python(tags: str, good: bool) -> None:
    assert fits(f"{tags}-manylinux_2_31_x86_64") is good
    assert fits(f"{tags}-manylinux_2_31_x86_64", "")


@pytest.mark.parametrize(
    ("platform", "good"),
    [
        ("any", True), ("linux_x86_64", True), ("manylinux2014_x86_64", True), ("manylinux_2_31_aarch64", False),
        ("macosx_11_0_x86_64", False), ("win_amd64", False), ("musllinux_1_2_x86_64", False),
        ("manylinux1_x86_64", True),
        ("manylinux_2_31_x86_64", True), ("manylinux_2_34_x86_64", False), ("manylinux_3_0_x86_64", False),
        ("manylinux_2_17_x86_64.manylinux_2_34_x86_64", True), ("manylinux_2_17_aarch64.manylinux_2_34_x86_64", False),
    ],
)  # fmt: skip
def test_the_tag_of_the_machine(platform: str, good: bool) -> None:
    assert fits(f"cp38-abi3-{platform}") is good

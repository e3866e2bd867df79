"""The shipped locks, and that a stale or lax one is seen."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible.module_utils.aerie.environment import comparison
from tests.controller.environment.conftest import make_wheel
from tools import lock_stack

TINY: dict[str, Any] = {
    "name": "tiny", "lock": "tiny.lock", "python": ">=3.12,<3.14", "glibc": "2.28", "machine": "x86_64",
}  # fmt: skip
STACKS = sorted(path.stem for path in lock_stack.STACKS.glob("*.yml"))


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "stacks"
    shutil.copytree(lock_stack.STACKS, folder)
    monkeypatch.setattr(lock_stack, "STACKS", folder)
    return folder


@pytest.mark.parametrize("name", STACKS)
def test_shipped_lock_answers_to_its_inputs(name: str) -> None:
    assert lock_stack.problems(lock_stack.load(name)) == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("inputs sha256:", "inputs sha256:0", "other inputs"),
        ("\n# needs glibc 2.28,", "\n# needs glibc 2.34,", "glibc 2.28, x86_64; its lock needs 2.34, x86_64"),
        ("\n# needs glibc 2.28, x86_64", "\n# needs glibc 2.28, aarch64", "x86_64; its lock needs 2.28, aarch64"),
        ("\n# needs glibc", "\n# glibc", "does not say what it needs of a host"),
        ("\ntorch==2.10.0 ", "\ntorch==2.9.0 ", "wants torch==2.10.0"),
        ("\ntorchvision==0.25.0 ", "\ntorchvision>=0.25.0 ", "not a pin with hashes"),
        ("\nspeculators==0.3.0 ", "\nother==0.3.0 ", "speculators not at all"),
        ("    # via\n", "    # via https://example.org/simple\n", "names an address"),
    ],
)
def test_stale_or_lax_lock_is_seen(copied: Path, old: str, new: str, says: str) -> None:
    path = copied / "vllm-0.16-cpu.lock"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert says in "\n".join(lock_stack.problems(lock_stack.load("vllm-0.16-cpu")))


def test_lock_of_changed_inputs_is_seen(copied: Path) -> None:
    with (copied / "vllm-0.16-cpu.in").open("a") as stream:
        stream.write("# changed\n")
    assert "other inputs" in "\n".join(lock_stack.problems(lock_stack.load("vllm-0.16-cpu")))


def wanted(name: str, python: str) -> dict[str, comparison.LockedVersion]:
    stack: dict[str, Any] = lock_stack.load(name)
    return comparison.locked_versions((lock_stack.STACKS / stack["lock"]).read_text(), python)


@pytest.mark.parametrize(
    ("name", "python"),
    [
        ("vllm-0.16-cuda", "3.12.3"),
        ("vllm-0.16-nightly-cuda", "3.12.3"),
        *(("vllm-0.16-cpu", f"3.{minor}.1") for minor in (10, 11, 12, 13)),
    ],
)
def test_br26_br27_one_version_of_each_by_hash_and_nothing_to_compile(name: str, python: str) -> None:
    wants = wanted(name, python)
    assert "deepspeed" not in wants
    assert wants["speculators"].version == "0.3.0"
    assert wants["transformers"].version.startswith("4.")
    assert all(one.hashes for one in wants.values())


@pytest.mark.parametrize(
    ("name", "python", "pair"),
    [
        ("vllm-0.16-cuda", "3.12.3", ("2.9.1", "0.24.1")),
        ("vllm-0.16-nightly-cuda", "3.12.3", ("2.10.0", "0.25.0")),
        ("vllm-0.16-cpu", "3.11.7", ("2.10.0", "0.25.0")),
    ],
)
def test_br21_torch_and_torchvision_are_a_pair(name: str, python: str, pair: tuple[str, str]) -> None:
    wants = wanted(name, python)
    assert (wants["torch"].version, wants["torchvision"].version) == pair


def test_the_lock_beside_a_nightly_leaves_out_vllm_alone(copied: Path) -> None:
    stack = lock_stack.load("vllm-0.16-nightly-cuda")
    assert "vllm" not in wanted(stack["name"], "3.12.3")
    path = copied / stack["lock"]
    path.write_text(path.read_text().replace("\nspeculators==0.3.0 ", "\nother==0.3.0 "))
    assert "speculators not at all" in "\n".join(lock_stack.problems(stack))


def test_a_lock_is_resolved_by_the_requirements_of_a_wheel_that_is_left_out(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    make_wheel(tmp_path / "site", "one", "2.0")
    make_wheel(tmp_path / "site", "vllm", "0.16.0")
    make_wheel(tmp_path, "vllm", "0.16.1.dev1+gabcdef012", requires=("one==2.0",))
    for suffix, text in (("in", "vllm==0.16.0\n"), ("overrides", "")):
        (copied / f"tiny.{suffix}").write_text(text)
    for name, value in (("UV_FIND_LINKS", str(tmp_path / "site")), ("UV_NO_INDEX", "1"), ("UV_OFFLINE", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    stack = {**TINY, "lock_options": ["--no-emit-package", "vllm"]}
    wheel = tmp_path / "vllm-0.16.1.dev1+gabcdef012-py3-none-any.whl"
    lock_stack.lock(stack, str(wheel))
    text = (copied / "tiny.lock").read_text()
    assert "\none==2.0 " in text
    assert "\nvllm" not in text
    assert "://" not in text
    assert lock_stack.problems(stack) == []


@pytest.mark.parametrize(
    ("tags", "needs"),
    [
        (["py3-none-any"], "0"),
        (["cp39-abi3-manylinux_2_17_x86_64", "cp39-abi3-manylinux_2_34_x86_64"], "2.17"),
        (["cp312-cp312-manylinux_2_17_x86_64", "cp313-cp313-manylinux_2_34_x86_64"], "2.34"),
        (["cp39-abi3-manylinux_2_17_aarch64", "cp39-abi3-manylinux_2_31_x86_64", "py3-none-win_amd64"], "2.31"),
        (["cp39-abi3-manylinux2014_x86_64.manylinux_2_34_x86_64"], "2.17"),
        (["cp312-cp312-manylinux_2_17_x86_64"], "no wheel of one for Python 3.13 on x86_64"),
    ],
)
def test_the_c_library_that_a_lock_needs_is_read_from_the_names_of_its_wheels(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tags: list[str], needs: str
) -> None:
    (tmp_path / "site").mkdir()
    digests = [make_wheel(tmp_path / "site", "one", "2.0", content=f"TAG = {tag!r}\n", tag=tag) for tag in tags]
    text = "one==2.0 \\\n    " + " \\\n    ".join(f"--hash=sha256:{digest}" for digest in digests) + "\n"
    for name, value in (("UV_FIND_LINKS", str(tmp_path / "site")), ("UV_NO_INDEX", "1"), ("UV_OFFLINE", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    stack = {**TINY, "lock_options": ["--universal", "--python-version", "3.12"]}
    if needs[0].isdigit():
        assert lock_stack.glibc_of(stack, text) == needs
    else:
        with pytest.raises(SystemExit, match=needs):
            lock_stack.glibc_of(stack, text)


def test_unknown_stack_names_the_known_ones() -> None:
    with pytest.raises(SystemExit, match=r"vllm-0\.16-cpu"):
        lock_stack.load("nope")

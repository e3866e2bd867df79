"""The shipped locks, and that a stale or lax one is seen."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ansible.module_utils.aerie.environment import locked
from tools import lock_stack

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


def wanted(name: str, python: str) -> dict[str, locked.Wanted]:
    stack: dict[str, Any] = lock_stack.load(name)
    return locked.wanted((lock_stack.STACKS / stack["lock"]).read_text(), python)


@pytest.mark.parametrize(
    ("name", "python"),
    [("vllm-0.16-cuda", "3.12.3"), *(("vllm-0.16-cpu", f"3.{minor}.1") for minor in (10, 11, 12, 13))],
)
def test_br26_br27_one_version_of_each_by_hash_and_nothing_to_compile(name: str, python: str) -> None:
    wants = wanted(name, python)
    assert "deepspeed" not in wants
    assert wants["speculators"].version == "0.3.0"
    assert wants["transformers"].version.startswith("4.")
    assert all(one.hashes for one in wants.values())


@pytest.mark.parametrize(
    ("name", "python", "pair"),
    [("vllm-0.16-cuda", "3.12.3", ("2.9.1", "0.24.1")), ("vllm-0.16-cpu", "3.11.7", ("2.10.0", "0.25.0"))],
)
def test_br21_torch_and_torchvision_are_a_pair(name: str, python: str, pair: tuple[str, str]) -> None:
    wants = wanted(name, python)
    assert (wants["torch"].version, wants["torchvision"].version) == pair


def test_unknown_stack_names_the_known_ones() -> None:
    with pytest.raises(SystemExit, match=r"vllm-0\.16-cpu"):
        lock_stack.load("nope")

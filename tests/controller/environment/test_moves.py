"""Neighbours without bounds move nothing, in whichever order things are installed (BR-26, BR-24, BR-27)."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible.module_utils.aerie.environment import uv
from ansible.module_utils.aerie.environment.converge import converge
from ansible.module_utils.aerie.environment.demand import Demand
from ansible.module_utils.aerie.environment.file_digest import file_digest
from ansible.module_utils.aerie.shared.refusal import Refusal

from .conftest import UV, Wheels, make_lock, make_wheel

Make = Callable[..., Demand]
CORE = {"torch": "2.10.0", "transformers": "4.57.6", "numpy": "2.2.6", "triton": "3.6.0", "torchvision": "0.25.0"}


@pytest.fixture
def pins(wheels: Wheels) -> dict[str, tuple[str, str]]:
    """A stack in small: exact demands of vLLM, unbounded ones of speculators, and newer releases of everything."""
    found = {}
    for name, version in CORE.items():
        make_wheel(wheels.folder, name, "99.0")
        found[name] = wheels.pin(name, version)
    demands = {"vllm": ("torch==2.10.0",), "speculators": (*CORE, "vllm")}
    for name, version in (("vllm", "0.16.0"), ("speculators", "0.3.0")):
        found[name] = version, make_wheel(wheels.folder, name, version, requires=demands[name])
    return found


@pytest.mark.parametrize("first", ["vllm", "speculators"])
def test_br26_whichever_comes_first_the_lock_decides(
    demand: Make, tmp_path: Path, pins: dict[str, tuple[str, str]], first: str
) -> None:
    """The one is there already, by a lock without the other; then comes the lock with both."""
    alone = {name: pin for name, pin in pins.items() if name in CORE or name == first}
    before = converge(demand(make_lock(**alone)), check_mode=False).after
    ordered = {first: pins[first], **pins}
    done = converge(demand(make_lock(**ordered)), check_mode=False)
    assert {name: done.after[name] for name in CORE} == {name: before[name] for name in CORE} == CORE
    assert done.after == {**CORE, "vllm": "0.16.0", "speculators": "0.3.0"}


def test_br26_what_an_installer_moved_by_hand_is_told_and_moved_back(
    demand: Make, tmp_path: Path, pins: dict[str, tuple[str, str]]
) -> None:
    converge(demand(make_lock(**pins)), check_mode=False)
    variables = uv.clean_variables(os.environ, demand().variables)
    python = str(tmp_path / "env" / "bin" / "python")
    uv.run(UV, ["pip", "install", "-q", "--upgrade", "--python", python, "speculators", "numpy"], variables)
    moved = converge(demand(make_lock(**pins)), check_mode=True)
    assert {(one.name, one.found) for one in moved.why} >= {("numpy", "99.0")}
    assert converge(demand(make_lock(**pins)), check_mode=False).after["numpy"] == "2.2.6"


@pytest.mark.parametrize("name", ["torch", "transformers", "numpy", "triton", "torchvision", "vllm"])
def test_br26_a_renewed_lock_moves_no_core_part_unless_told(
    demand: Make, tmp_path: Path, wheels: Wheels, pins: dict[str, tuple[str, str]], name: str
) -> None:
    converge(demand(make_lock(**pins)), check_mode=False)
    before = (tmp_path / "env").readlink()
    newer = make_lock(**{**pins, name: wheels.pin(name, "99.0")})
    for check_mode in (True, False):
        with pytest.raises(Refusal, match=rf"core versions: would move: {name} \S+ -> 99\.0;"):
            converge(demand(newer), check_mode)
    assert (tmp_path / "env").readlink() == before
    if name == "torch":
        assert converge(demand(newer, may_move=True), check_mode=False).after["torch"] == "99.0"
        # Another stack is another name: that is asked for.
        assert converge(demand(make_lock(**pins), stack="other"), check_mode=False).after["torch"] == "2.10.0"


def test_br26_what_is_no_core_part_may_move(demand: Make, wheels: Wheels, pins: dict[str, tuple[str, str]]) -> None:
    converge(demand(make_lock(alpha=wheels.pin("alpha", "1.0"), **pins)), check_mode=False)
    done = converge(demand(make_lock(alpha=wheels.pin("alpha", "1.1"), **pins)), check_mode=False)
    assert done.after["alpha"] == "1.1"


def test_br24_companions_of_an_earlier_pin_do_not_stay(demand: Make, wheels: Wheels) -> None:
    """From one commit to the next, whose lock has a newer FlashInfer and one companion less."""
    old = {name: wheels.pin(name, "0.6.3") for name in ("flashinfer_python", "flashinfer_cubin")}
    converge(demand(make_lock(**old)), check_mode=False)
    newer = make_lock(flashinfer_python=wheels.pin("flashinfer_python", "0.6.4"))
    done = converge(demand(newer, may_move=True), check_mode=False)
    assert done.after == {"flashinfer-python": "0.6.4"}


def test_br27_a_source_only_distribution_is_not_built(demand: Make, tmp_path: Path, wheels: Wheels) -> None:
    """No compiler and no toolkit is asked for: what has no wheel is refused, and none of its code runs."""
    files = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.1\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": f"open({str(tmp_path / 'built')!r}, 'w')\n",
    }
    source = wheels.folder / "deepspeed-0.1.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"deepspeed-0.1/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    lock = make_lock(deepspeed=("0.1", file_digest(source)))
    with pytest.raises(Refusal, match="deepspeed"):
        converge(demand(lock), check_mode=False)
    assert not (tmp_path / "built").exists()
    assert not (tmp_path / "env").exists()

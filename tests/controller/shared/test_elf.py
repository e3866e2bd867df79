"""Reading DT_NEEDED, with readelf and the dynamic loader's own files as oracles."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from aerie_host.shared.elf import ElfError, needed

CANDIDATES = [Path(sys.executable).resolve(), *Path(str(sysconfig.get_path("platstdlib"))).glob("lib-dynload/_s*.so")]


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is the oracle")
@pytest.mark.parametrize("path", CANDIDATES, ids=lambda path: path.name)
def test_what_a_binary_needs_is_what_readelf_says(path: Path) -> None:
    text = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
    assert needed(path) == re.findall(r"\(NEEDED\).*\[(.+)\]", text)


def test_the_interpreter_needs_the_c_library() -> None:
    assert any(name.startswith("libc.so") for name in needed(Path(sys.executable).resolve()))


@pytest.mark.parametrize("length", [0, 3, 20, 63, 70, 200])
def test_a_file_cut_short_or_of_another_kind_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "cut.so"
    path.write_bytes(Path(sys.executable).resolve().read_bytes()[:length])
    with pytest.raises(ElfError):
        needed(path)
    path.write_bytes(b"#!/bin/sh\n" * 20)
    with pytest.raises(ElfError, match="not a 64-bit"):
        needed(path)

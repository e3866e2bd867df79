"""Python must never run what was compiled from other bytes than those on disk."""

from __future__ import annotations

import py_compile
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .helpers import Env, Maker, failed, lay_out

if TYPE_CHECKING:
    from pathlib import Path

OLD = b"VALUE = 'old'\n"


def value(env: Env) -> str:
    """What a fresh interpreter finds, writing no bytecode of its own."""
    code = f"import sys; sys.path.insert(0, {str(env.site)!r}); import demo.timed as t; print(t.VALUE)"
    done = subprocess.run([sys.executable, "-I", "-B", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def prepared(env: Env) -> tuple[Maker, Path]:
    files = {"demo/__init__.py": b"", "demo/timed.py": OLD}
    lay_out(env.root, "demo", "1.0", files)
    maker = Maker(pristine=files).edit("same-size", ("demo/timed.py", "'old'", "'new'"))
    return maker, env.site / "demo/timed.py"


@pytest.mark.parametrize("mode", ["TIMESTAMP", "CHECKED_HASH", "UNCHECKED_HASH"])
def test_neither_apply_nor_rollback_runs_old_code(env: Env, mode: str) -> None:
    maker, file = prepared(env)
    for action, before, after in (("present", "old", "new"), ("absent", "new", "old")):
        for optimize in (0, 1, 2):
            py_compile.compile(str(file), invalidation_mode=py_compile.PycInvalidationMode[mode], optimize=optimize)
        (file.parent / "__pycache__" / "timed.cpython-38.pyc").write_bytes(b"of another interpreter")
        assert value(env) == before
        assert env.run(maker, state=action).changed
        assert value(env) == after
        assert not (file.parent / "__pycache__").exists()


def test_the_time_always_differs_by_whole_seconds(env: Env) -> None:
    maker, file = prepared(env)
    before = int(file.stat().st_mtime)
    env.run(maker)
    between = int(file.stat().st_mtime)
    env.run(maker, state="absent")
    assert len({before, between}) == 2
    assert between != int(file.stat().st_mtime)


def test_bytecode_of_neighbours_stays(env: Env) -> None:
    maker, file = prepared(env)
    neighbour = file.with_name("timed_more.py")
    neighbour.write_bytes(b"")
    for source in (file, neighbour):
        py_compile.compile(str(source))
    env.run(maker)
    assert [path.name.split(".")[0] for path in (file.parent / "__pycache__").iterdir()] == ["timed_more"]


def test_unchecked_bytecode_of_other_bytes_is_dropped_although_the_source_is_right(env: Env) -> None:
    maker, file = prepared(env)
    py_compile.compile(str(file), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    cached = next((file.parent / "__pycache__").iterdir())
    stale = cached.read_bytes()
    env.run(maker)
    cached.parent.mkdir()
    cached.write_bytes(stale)
    assert value(env) == "old"
    foretold = env.run(maker, check_mode=True)
    assert (foretold.changed, cached.exists()) == (True, True)
    done = env.run(maker)
    assert (done.changed, failed(done)) == (True, [])
    assert value(env) == "new"
    py_compile.compile(str(file), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert not env.run(maker).changed
    assert cached.exists()


def test_a_removed_module_leaves_no_bytecode(env: Env, maker: Maker) -> None:
    env.run(maker)
    py_compile.compile(str(env.site / "demo/added.py"))
    py_compile.compile(str(env.site / "demo/added.py"), cfile=str(env.site / "demo/added.pyc"))
    env.run(maker, state="absent")
    env.assert_pristine()


def test_a_bytecode_directory_that_is_a_link_is_cut_and_not_followed(env: Env, tmp_path: Path) -> None:
    maker, file = prepared(env)
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "timed.cpython-311.pyc").write_bytes(b"of others")
    (file.parent / "__pycache__").symlink_to(shared)
    assert env.run(maker).changed
    assert not (file.parent / "__pycache__").exists()
    assert (shared / "timed.cpython-311.pyc").read_bytes() == b"of others"

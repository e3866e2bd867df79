"""BR-28 and its neighbours: patch faults that people reported in public against other tools.

Each is run twice; the second run must be calm.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from .helpers import PRISTINE, Env, Maker, assert_clean, failed, lay_out, snapshot, standard

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.patching.request import Result


def twice(env: Env, maker: Maker, **options: object) -> Result:
    first = env.run(maker, **options)
    assert (first.changed, failed(first)) == (True, [])
    second = env.run(maker, **options)
    assert (second.changed, failed(second)) == (False, [])
    assert_clean(env.root)
    return first


def test_br28_clean_file(env: Env, maker: Maker) -> None:
    twice(env, maker)
    env.assert_desired(maker)


def test_br28_absolute_paths_under_site_packages_are_not_called_dangerous(env: Env, maker: Maker) -> None:
    twice(env, maker, environment=env.root.absolute())
    env.assert_desired(maker)


def test_br28_first_hunk_of_two_applied_by_hand(env: Env) -> None:
    maker = Maker().edit(
        "both",
        ("demo/engine.py", "engine_3 = 3\n", "engine_3 = 33\n"),
        ("demo/engine.py", "engine_20 = 20\n", "engine_20 = 22\n"),
    )
    half = PRISTINE["demo/engine.py"].replace(b"engine_3 = 3\n", b"engine_3 = 33\n")
    (env.site / "demo/engine.py").write_bytes(half)
    for _ in range(2):
        result = env.run(maker)
        assert failed(result) == ["file demo/engine.py", "patch 0001-both"]
        assert "0001-both (its probe '^engine_20 = 22" in result.checks.failed[0].found
        assert env.read("demo/engine.py") == half
        assert_clean(env.root)
    # The rest is taken from digests: the pristine file is recovered by taking our own hunk back.
    twice(env, maker, restore=True)
    env.assert_desired(maker)


def crlf_env(env: Env) -> Maker:
    files = {path: content.replace(b"\n", b"\r\n") for path, content in PRISTINE.items()}
    lay_out(env.root, "demo", "1.0", files)
    env.pristine = snapshot(env.site)
    maker = Maker(pristine=files)
    maker.edit("crlf", ("demo/engine.py", "engine_3 = 3\r\n", "engine_3 = 33\r\nmore = 1\r\n"))
    return maker


@pytest.mark.parametrize("patch_ends", ["lf", "crlf"])
def test_br28_wheel_with_crlf_files(env: Env, patch_ends: str) -> None:
    maker = crlf_env(env)
    if patch_ends == "lf":
        maker.texts = {name: text.replace("\r\n", "\n") for name, text in maker.texts.items()}
    twice(env, maker)
    env.assert_desired(maker)
    env.run(maker, state="absent")
    env.assert_pristine()


def test_br28_file_turned_into_crlf_by_hand_is_drift(env: Env, maker: Maker) -> None:
    turned = PRISTINE["demo/engine.py"].replace(b"\n", b"\r\n")
    (env.site / "demo/engine.py").write_bytes(turned)
    for _ in range(2):
        result = env.run(maker)
        assert failed(result)[0] == "file demo/engine.py"
        assert env.read("demo/engine.py") == turned
        assert_clean(env.root)


def test_br28_site_packages_reached_by_lib64(env: Env, maker: Maker) -> None:
    twice(env, maker, environment=env.root / "lib64" / "python3.11" / "site-packages")
    env.assert_desired(maker)
    assert not env.run(maker).changed


def test_br28_distribution_that_lives_in_a_real_lib64(tmp_path: Path, maker: Maker) -> None:
    env = Env(tmp_path / "env")
    (env.root / "lib64").unlink()
    (env.root / "lib").rename(env.root / "lib64")
    (env.root / "lib/python3.11/site-packages").mkdir(parents=True)
    env.site = env.root / "lib64/python3.11/site-packages"
    twice(env, maker)
    env.assert_desired(maker)


def test_br28_environment_given_as_a_link(env: Env, maker: Maker, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(env.root)
    twice(env, maker, environment=link)
    assert link.is_symlink()
    assert not env.run(maker).changed
    env.assert_desired(maker)


def test_br28_symlinked_files_are_replaced_and_their_targets_kept(env: Env, maker: Maker, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for path in PRISTINE:
        stored = cache / path
        stored.parent.mkdir(parents=True, exist_ok=True)
        (env.site / path).rename(stored)
        (env.site / path).symlink_to(stored)
    before = snapshot(cache)
    twice(env, maker)
    assert snapshot(cache) == before
    assert not (env.site / "demo/engine.py").is_symlink()
    assert (env.site / "demo/__init__.py").is_symlink()
    env.assert_desired(maker)
    env.run(maker, state="absent")
    assert snapshot(cache) == before
    env.assert_pristine()


def test_br28_directory_that_is_a_link_out_of_the_environment_is_refused(
    env: Env, maker: Maker, tmp_path: Path
) -> None:
    (env.site / "demo/sub").rename(tmp_path / "sub")
    (env.site / "demo/sub").symlink_to(tmp_path / "sub")
    before = snapshot(tmp_path / "sub")
    result = env.run(maker)
    assert failed(result) == ["write"]
    assert "outside the environment" in result.checks.failed[0].found
    assert snapshot(tmp_path / "sub") == before
    assert {path: env.read(path) for path in PRISTINE} == PRISTINE
    assert_clean(env.root)


def test_br28_site_packages_that_is_a_link_out_of_the_environment_is_refused(
    env: Env, maker: Maker, tmp_path: Path
) -> None:
    env.site.rename(tmp_path / "shared")
    env.site.symlink_to(tmp_path / "shared")
    result = env.run(maker)
    assert failed(result) == ["write"]
    assert "outside the environment" in result.checks.failed[0].found
    assert {path: env.read(path) for path in PRISTINE} == PRISTINE


def test_br28_hard_links_into_a_cache_are_broken_and_never_written_through(
    env: Env, maker: Maker, tmp_path: Path
) -> None:
    cache, other = tmp_path / "cache", tmp_path / "other-env"
    for folder in (cache, other):
        for path in [*PRISTINE, "demo-1.0.dist-info/RECORD"]:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            os.link(env.site / path, folder / path)
    before = snapshot(cache)
    twice(env, maker)
    assert snapshot(cache) == before == snapshot(other)
    env.run(maker, state="absent")
    assert snapshot(cache) == before == snapshot(other)
    assert (cache / "demo/engine.py").stat().st_ino != (env.site / "demo/engine.py").stat().st_ino


def test_br28_read_only_file_keeps_its_mode(env: Env, maker: Maker) -> None:
    (env.site / "demo/engine.py").chmod(0o444)
    (env.site / "demo/worker.py").chmod(0o755)
    twice(env, maker)
    assert (env.site / "demo/engine.py").stat().st_mode & 0o7777 == 0o444
    assert (env.site / "demo/worker.py").stat().st_mode & 0o7777 == 0o755
    env.run(maker, state="absent")
    assert (env.site / "demo/engine.py").stat().st_mode & 0o7777 == 0o444


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_br28_owner_is_kept(env: Env, maker: Maker) -> None:
    os.chown(env.site / "demo/engine.py", 1234, 4321)
    twice(env, maker)
    info = (env.site / "demo/engine.py").stat()
    assert (info.st_uid, info.st_gid) == (1234, 4321)


def test_br28_environment_inside_a_git_checkout(tmp_path: Path, maker: Maker) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("env/\n")
    env = Env(tmp_path / "env")
    twice(env, maker)
    env.assert_desired(maker)


def test_br28_look_alike_block_elsewhere_never_takes_the_patch(env: Env) -> None:
    block = b"def f():\n    x = 1\n    return x\n\n\n"
    files = {**PRISTINE, "demo/engine.py": block + b"a = 1\n\n\n" + block.replace(b"def f", b"def g")}
    lay_out(env.root, "demo", "1.0", files)
    env.pristine = snapshot(env.site)
    maker = Maker(pristine=files).edit(
        "block", ("demo/engine.py", "    x = 1\n    return x\n", "    x = 2\n    return x\n")
    )
    shift = maker.texts["0001-block"]
    assert "@@ -1,3 +1,3 @@" in shift
    maker.texts["0001-block"] = shift.replace("@@ -1,3 +1,3 @@", "@@ -2,3 +2,3 @@").replace(
        " def f():\n", " def g():\n"
    )
    result = env.run(maker)
    assert "the lines are at line 9 instead (offset +7)" in result.checks.failed[0].found
    env.assert_pristine()


def test_br28_an_updated_patch_reaches_a_host_patched_before(env: Env, maker: Maker) -> None:
    env.run(maker)
    newer = standard()
    newer.texts["0001-first"] = newer.texts["0001-first"].replace("+engine_3 = 33", "+engine_3 = 3333")
    newer.texts["0002-second"] = newer.texts["0002-second"].replace("engine_3 = 33", "engine_3 = 3333")
    result = env.run(newer)
    assert (result.changed, failed(result)) == (True, [])
    assert b"engine_3 = 3333\n" in (env.read("demo/engine.py") or b"")

"""Death at any instant, full disks, and two runs at once."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ansible.module_utils.aerie.environment.hold import environment_hold
from ansible.module_utils.aerie.patching import commit

from .helpers import PRISTINE, Env, Maker, assert_clean, failed, snapshot, standard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WRITERS = {
    "patching": {"bytecode.py", "commit.py", "engine.py", "pristine_copies.py", "transaction.py"},
    "environment": {"hold.py"},
    "shared": {"durable.py"},
}
KILLS = 200


def in_child(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked process; return its wait status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


class Countdown:
    """Counts the lines that the writing half of the engine runs, and kills the process at one of them."""

    def __init__(self, kill_at: int) -> None:
        self.left = kill_at
        self.count = 0

    def __call__(self, frame: object, event: str, _: object) -> object:
        file = Path(frame.f_code.co_filename)  # type: ignore[attr-defined]
        if file.name not in WRITERS.get(file.parent.name, ()):
            return None
        if event == "line":
            self.count += 1
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def count_lines(env: Env, maker: Maker, state: str) -> int:
    """How many lines such a run has, asked of a child so that this process stays untraced."""
    reader, writer = os.pipe()

    def work() -> None:
        counter = Countdown(-1)
        sys.settrace(counter)
        env.run(maker, state=state)
        sys.settrace(None)
        os.write(writer, str(counter.count).encode())

    in_child(work)
    os.close(writer)
    with os.fdopen(reader) as answer:
        return int(answer.read())


def grown() -> Maker:
    maker = standard().edit("fourth", ("demo/engine.py", "engine_9 = 9\n", "engine_9 = 0\n"))
    return maker.module("demo/new/more.py", b"A = 1\n")


def repair(env: Env, how: str, old: Maker, new: Maker, state: str) -> None:
    """The next run: the same again, the series of before, or a rollback that knows of no series."""
    if how == "roll back" or (how == "same" and state == "absent"):
        assert failed(env.run(new if how == "same" else None, state="absent")) == []
        env.assert_pristine()
        assert not (env.root / ".aerie/patches").exists()
        return
    series = new if how == "same" else old
    assert failed(env.run(series)) == []
    env.assert_desired(series)
    assert not env.run(series).changed


@pytest.mark.parametrize("journey", ["apply", "roll back", "grow", "shrink"])
def test_kill_at_any_instant_is_repaired_by_the_next_run(tmp_path: Path, journey: str) -> None:
    """A quarter of 200 kills for each journey, at points drawn over all lines that write or lead to writing."""
    old, new = {"grow": (standard(), grown()), "shrink": (grown(), standard())}.get(journey, (standard(), standard()))
    state = "absent" if journey == "roll back" else "present"
    draw = random.Random(journey)  # noqa: S311  (kill points, not keys)
    folder = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    base = folder / f"aerie-kill-{os.getpid()}"
    env = Env(base / "env")
    try:
        start = (lambda: env.run(state="absent")) if journey == "apply" else (lambda: env.run(old))
        start()
        lines = count_lines(env, new, state)
        killed = 0
        for _ in range(KILLS // 4):
            start()

            def work(kill_at: int = draw.randint(1, lines)) -> None:
                sys.settrace(Countdown(kill_at))
                env.run(new, state=state)

            killed += os.WIFSIGNALED(in_child(work))
            for path, content in PRISTINE.items():
                assert env.read(path) in (content, old.desired().get(path, content), new.desired().get(path, content))
            repair(env, draw.choice(("same", "other", "roll back")), old, new, state)
        assert killed > KILLS // 4 * 0.9
        env.run(state="absent")
        env.assert_pristine()
    finally:
        shutil.rmtree(base)


def test_a_failure_between_two_replacements_puts_all_back(
    env: Env, maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for steps in range(1, 30):
        left = [steps]
        drop = commit.bytecode.drop

        def failing(source: Path, left: list[int] = left, drop: Callable[[Path], None] = drop) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise OSError(errno.EIO, "Input/output error")
            drop(source)

        monkeypatch.setattr(commit.bytecode, "drop", failing)
        result = env.run(maker)
        monkeypatch.undo()
        if left[0] > 0:
            break
        assert failed(result) == ["file system"]
        env.assert_pristine()
        assert not (env.root / ".aerie/patches").exists()
    assert steps > 6
    env.assert_desired(maker)


def test_when_putting_back_fails_too_the_next_run_repairs(
    env: Env, maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.replace

    def failing(self: Path, target: Path) -> Path:
        if target.name == "worker.py" or self.name.endswith(".old"):
            raise OSError(errno.EIO, "Input/output error")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    result = env.run(maker)
    monkeypatch.undo()
    assert (failed(result), result.changed) == (["write"], True)
    assert "run again" in result.checks.failed[0].found
    assert env.read("demo/engine.py") == maker.desired()["demo/engine.py"]
    assert env.read("demo/worker.py") == PRISTINE["demo/worker.py"]
    assert failed(env.run(maker)) == []
    env.assert_desired(maker)


@contextmanager
def tmpfs(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("this user may not mount a tmpfs: " + done.stderr.decode().strip())
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")


def fill(folder: Path, leave: int) -> Path:
    """Fill the file system up to ``leave`` pages."""
    ballast = folder / "ballast"

    def write_all() -> None:
        with ballast.open("wb", buffering=0) as stream:
            while True:
                stream.write(b"x" * 4096)

    with pytest.raises(OSError, match="No space left"):
        write_all()
    os.truncate(ballast, ballast.stat().st_size - leave * 4096)
    return ballast


@needs_root
def test_full_disk_refuses_and_leaves_nothing(tmp_path: Path, maker: Maker) -> None:
    with tmpfs(tmp_path / "small", "400k") as folder:
        env = Env(folder / "env")
        refused = 0
        for leave in range(14):
            ballast = fill(folder, leave)
            result = env.run(maker)
            ballast.unlink()
            if failed(result):
                assert failed(result) == ["disk space"]
                assert "No space left" in result.checks.failed[0].found
                env.assert_pristine()
                assert not (env.root / ".aerie/patches").exists()
                refused += 1
        assert 1 < refused < 14
        env.assert_desired(maker)
        for leave in range(14):
            env.run(maker)
            ballast = fill(folder, leave)
            result = env.run(maker, state="absent")
            ballast.unlink()
            if failed(result):
                assert failed(result) == ["disk space"]
                env.assert_desired(maker)
                assert not env.run(maker).changed
        env.assert_pristine()


@needs_root
def test_read_only_file_system_refuses(tmp_path: Path, maker: Maker) -> None:
    with tmpfs(tmp_path / "small", "1m") as folder:
        env = Env(folder / "env")
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        result = env.run(maker)
        assert failed(result) == ["write"]
        assert not result.changed
        assert "writable" in result.checks.failed[0].remedy
        env.assert_pristine()
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
        env.run(maker)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        calm = env.run(maker)
        assert (failed(calm), calm.changed) == ([], False)


@needs_root
def test_site_packages_on_another_file_system(tmp_path: Path, maker: Maker) -> None:
    env = Env(tmp_path / "env")
    kept = tmp_path / "kept"
    (env.root / "lib").rename(kept)
    with tmpfs(env.root / "lib", "1m") as folder:
        subprocess.run(["cp", "-a", f"{kept}/.", str(folder)], check=True)
        assert failed(env.run(maker)) == []
        env.assert_desired(maker)
        env.run(maker, state="absent")
        env.assert_pristine()


def test_the_second_run_names_the_first_and_refuses(env: Env, maker: Maker) -> None:
    with environment_hold(env.root.resolve(), 1):
        result = env.run(maker, hold_wait_s=0.1)
    assert failed(result) == ["hold"]
    assert f"process {os.getpid()}, since 20" in result.checks.failed[0].found
    env.assert_pristine()
    assert env.run(maker).changed


def test_the_second_run_waits_for_a_short_first(env: Env, maker: Maker) -> None:
    ready = threading.Event()

    def hold() -> None:
        with environment_hold(env.root.resolve(), 1):
            ready.set()
            time.sleep(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    result = env.run(maker, hold_wait_s=30)
    thread.join()
    assert (failed(result), result.changed) == ([], True)


def test_many_runs_at_once_end_in_one_of_the_wanted_states(env: Env, maker: Maker) -> None:
    other = grown()
    children = []
    for number in range(8):
        child = os.fork()
        if child == 0:
            result = env.run(other if number % 2 else maker, hold_wait_s=30)
            os._exit(bool(result.checks.failed))
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    assert_clean(env.root)
    engine = env.read("demo/engine.py")
    env.assert_desired(other if engine == other.desired()["demo/engine.py"] else maker)


def test_two_environments_do_not_know_each_other(tmp_path: Path, maker: Maker) -> None:
    one, two = Env(tmp_path / "one"), Env(tmp_path / "two")
    one.run(maker)
    two.assert_pristine()
    with environment_hold(one.root.resolve(), 1):
        assert two.run(maker).changed
    assert snapshot(one.site) == snapshot(two.site)


def test_a_copied_environment_stands_on_its_own(env: Env, maker: Maker, tmp_path: Path) -> None:
    env.run(maker)
    shutil.copytree(env.root, tmp_path / "copy", symlinks=True)
    copy = env.__class__.__new__(Env)
    copy.root, copy.site, copy.pristine = (
        tmp_path / "copy",
        tmp_path / "copy" / env.site.relative_to(env.root),
        env.pristine,
    )
    assert not copy.run(maker).changed
    assert copy.run(maker, state="absent").changed
    copy.assert_pristine()
    env.assert_desired(maker)

"""What the engine remembers of a host, and what it does when that is lost, false or out of date."""

from __future__ import annotations

import shutil

import pytest

from .helpers import PRISTINE, Env, Maker, failed, lay_out, states


def test_rollback_needs_no_series(env: Env, maker: Maker) -> None:
    env.run(maker)
    assert env.run(state="absent").changed
    env.assert_pristine()
    assert not (env.root / ".aerie" / "patches").exists()
    assert not env.run(state="absent").changed


def test_reinstall_by_hand_is_seen(env: Env, maker: Maker) -> None:
    env.run(maker)
    lay_out(env.root, "demo", "1.0", PRISTINE)
    assert "patch 0001-first" in failed(env.run(maker, state="audited"))
    again = env.run(maker)
    assert (again.changed, failed(again)) == (True, [])
    env.assert_desired(maker)


DAMAGES = ["state gone", "copies gone", "copies altered", "all gone", "no store", "state garbled", "state lies"]


def harm(env: Env, damage: str) -> None:
    """Take away or falsify what the engine remembers."""
    private = env.root / ".aerie" / "patches"
    if damage == "no store":
        shutil.rmtree(env.root / ".aerie")
    if damage in ("state gone", "all gone"):
        (private / "state.json").unlink()
    if damage in ("copies gone", "all gone"):
        for copy in (private / "pristine").iterdir():
            copy.unlink()
    if damage == "copies altered":
        for copy in (private / "pristine").iterdir():
            copy.write_bytes(b"evil = 1\n")
    if damage == "state garbled":
        (private / "state.json").write_text('{"schema": 1, "distributions": [3]}')
    if damage == "state lies":
        (private / "state.json").write_text('{"schema": 1, "distributions": {"demo": {"files": {}, "record": null}}}')


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_rollback_needs_neither_record_nor_copies(env: Env, maker: Maker, damage: str) -> None:
    env.run(maker)
    harm(env, damage)
    foretold = env.run(maker, state="absent", check_mode=True)
    back = env.run(maker, state="absent")
    assert (foretold.changed, back.changed, failed(back)) == (True, True, [])
    env.assert_pristine()
    assert not (env.root / ".aerie" / "patches").exists()


def test_a_garbled_record_is_no_reason_to_say_that_nothing_is_patched(env: Env, maker: Maker) -> None:
    env.run(maker)
    (env.root / ".aerie" / "patches" / "state.json").write_text("garb")
    copies = sorted((env.root / ".aerie" / "patches" / "pristine").iterdir())
    blind = env.run(state="absent")
    assert failed(blind) == ["record"]
    assert sorted((env.root / ".aerie" / "patches" / "pristine").iterdir()) == copies
    env.assert_desired(maker)


@pytest.mark.parametrize("damage", DAMAGES)
def test_records_and_copies_are_never_believed_over_digests(env: Env, maker: Maker, damage: str) -> None:
    env.run(maker)
    harm(env, damage)
    calm = env.run(maker)
    assert (calm.changed, failed(calm)) == (False, [])
    env.assert_desired(maker)
    back = env.run(maker, state="absent")
    assert (back.changed, failed(back)) == (True, [])
    env.assert_pristine()


def test_a_hand_patched_host_with_everything_in_place_is_in_order(env: Env, maker: Maker) -> None:
    for path, content in maker.desired().items():
        (env.site / path).write_bytes(content)
    first = env.run(maker)
    assert (failed(first), first.changed) == ([], True)  # RECORD lacks the module
    assert [entry["before_header"] for entry in first.diffs] == ["demo-1.0.dist-info/RECORD"]
    assert not env.run(maker).changed
    env.run(maker, state="absent")
    env.assert_pristine()


def test_nothing_but_recovery_by_digest_when_the_copy_is_lost(env: Env, maker: Maker) -> None:
    (env.site / "demo/engine.py").write_bytes(b"rewritten = 1\n")
    result = env.run(maker, restore=True)
    assert failed(result)[0] == "file demo/engine.py"
    assert "no pristine copy" in result.checks.failed[0].found
    assert "reinstall" in result.checks.failed[0].remedy
    (env.site / "demo/engine.py").unlink()
    gone = env.run(maker)
    assert states(gone)["0001-first"] == "missing target"


def test_record_keeps_what_others_added_to_it(env: Env, maker: Maker) -> None:
    record = env.site / "demo-1.0.dist-info/RECORD"
    env.run(maker)
    record.write_bytes(record.read_bytes() + b"../../../bin/tool,,\n")
    env.run(maker, state="absent")
    assert record.read_bytes() == env.pristine["demo-1.0.dist-info/RECORD"][1] + b"../../../bin/tool,,\n"


def test_record_without_final_line_end_comes_back_byte_for_byte(env: Env, maker: Maker) -> None:
    record = env.site / "demo-1.0.dist-info/RECORD"
    record.write_bytes(record.read_bytes()[:-1])
    before = record.read_bytes()
    env.run(maker)
    assert b"demo/added.py,sha256=" in record.read_bytes()
    env.run(maker, state="absent")
    assert record.read_bytes() == before


def test_an_upgrade_in_between_is_judged_by_its_own_record(env: Env, maker: Maker) -> None:
    env.run(maker)
    for path in [*PRISTINE, "demo/added.py"]:  # as an uninstall does, by RECORD
        (env.site / path).unlink()
    for file in (env.site / "demo-1.0.dist-info").iterdir():
        file.unlink()
    (env.site / "demo-1.0.dist-info").rmdir()
    files = {"demo/__init__.py": b"", "demo/engine.py": b"".join(b"new_%d = 1\n" % n for n in range(30))}
    lay_out(env.root, "demo", "2.0", files)
    assert failed(env.run(maker)) == ["series demo-1.0", *(f"patch {name}" for name in states(env.run(maker)))]
    newer = Maker(version="2.0", pristine=files).edit("first", ("demo/engine.py", "new_5 = 1\n", "new_5 = 2\n"))
    done = env.run(newer)
    assert (failed(done), done.changed) == ([], True)
    assert not env.run(newer).changed
    assert env.read("demo/worker.py") is None
    env.run(state="absent")
    assert env.read("demo/engine.py") == files["demo/engine.py"]


def test_rollback_after_an_upgrade_touches_nothing(env: Env, maker: Maker) -> None:
    env.run(maker)
    (env.site / "demo-1.0.dist-info").rename(env.site / "demo-2.0.dist-info")
    files = {path: content + b"two = 2\n" for path, content in PRISTINE.items()}
    (env.site / "demo/added.py").unlink()
    lay_out(env.root, "demo", "2.0", files)
    done = env.run(state="absent")
    assert failed(done) == []
    assert env.read("demo/engine.py") == files["demo/engine.py"]
    assert not (env.root / ".aerie/patches").exists()

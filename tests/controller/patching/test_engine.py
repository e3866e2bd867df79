from __future__ import annotations

import pytest

from .helpers import PRISTINE, Env, Maker, failed, lay_out, standard, states


def test_apply_then_nothing_then_rollback(env: Env, maker: Maker) -> None:
    first = env.run(maker)
    assert (first.changed, first.checks.failed) == (True, [])
    assert set(states(first).values()) == {"applied"}
    env.assert_desired(maker)
    second = env.run(maker)
    assert (second.changed, second.checks.failed) == (False, [])
    back = env.run(maker, state="absent")
    assert (back.changed, back.checks.failed) == (True, [])
    assert set(states(back).values()) == {"not applied"}
    env.assert_pristine()
    assert not env.run(maker, state="absent").changed


def test_check_mode_says_exactly_what_a_run_does(env: Env, maker: Maker) -> None:
    foretold = env.run(maker, check_mode=True)
    env.assert_pristine()
    assert not (env.root / ".aerie").exists()
    assert set(states(foretold).values()) == {"would apply"}
    done = env.run(maker)
    assert (foretold.changed, foretold.diffs) == (done.changed, done.diffs)
    assert {entry["before_header"] for entry in done.diffs} == {
        "demo/engine.py", "demo/worker.py", "demo/sub/deep.py", "/dev/null", "demo-1.0.dist-info/RECORD"
    }  # fmt: skip
    for entry in done.diffs:
        assert env.read(entry["after_header"]) == entry["after"].encode()
    assert env.run(maker, check_mode=True).diffs == []


def test_audit_changes_nothing_and_fails_until_applied(env: Env, maker: Maker) -> None:
    for check_mode in (False, True):
        before = env.run(maker, state="audited", check_mode=check_mode)
        assert "patch 0001-first" in failed(before)
        assert not before.changed
    env.assert_pristine()
    env.run(maker)
    after = env.run(maker, state="audited")
    assert failed(after) == []
    probes = {check["name"]: check for check in after.checks.as_list() if check["name"].startswith("probe")}
    assert probes["probe 0001-first: ^engine_3 = 33\\r?$"]["line"] == 3


def variants() -> dict[str, Maker]:
    edited = Maker().edit("first", ("demo/engine.py", "engine_3 = 3\n", "engine_3 = 4444\n"))
    dropped = Maker().edit("second", ("demo/worker.py", "worker_9 = 9\n", "worker_9 = 99\n"))
    reordered = Maker()
    reordered.edit("second", ("demo/worker.py", "worker_9 = 9\n", "worker_9 = 99\n"))
    reordered.edit("first", ("demo/engine.py", "engine_3 = 3\n", "engine_3 = 33\nengine_3b = 1\n"))
    grown = (
        standard().edit("fourth", ("demo/__init__.py", "", "HELLO = 1\n")).module("demo/sub/new/more.py", b"A = 1\n")
    )
    changed_module = standard().module("demo/added.py", b"VALUE = 8\n")
    return {"edited": edited, "dropped": dropped, "reordered": reordered, "grown": grown, "module": changed_module}


@pytest.mark.parametrize("name", list(variants()))
def test_a_changed_series_converges_and_back(env: Env, maker: Maker, name: str) -> None:
    other = variants()[name]
    env.run(maker)
    there = env.run(other)
    assert (there.changed, failed(there)) == (True, [])
    env.assert_desired(other)
    for target in set(maker.desired()) - set(PRISTINE) - set(other.desired()):
        assert env.read(target) is None
    back = env.run(maker)
    assert (back.changed, failed(back)) == (True, [])
    env.assert_desired(maker)
    assert env.read("demo/sub/new/more.py") is None
    assert not (env.site / "demo/sub/new").exists()
    env.run(maker, state="absent")
    env.assert_pristine()


def test_drift_is_refused_named_and_left_alone(env: Env, maker: Maker) -> None:
    env.run(maker)
    (env.site / "demo/worker.py").write_bytes(PRISTINE["demo/worker.py"] + b"EXTRA = 1\n")
    for _ in range(2):
        result = env.run(maker)
        assert failed(result) == ["file demo/worker.py", "patch 0002-second"]
        check = result.checks.failed[0]
        assert "0002-second (its probe '^worker_9 = 99$' fails)" in check.found
        entry = next(e for e in result.data["files"] if e["path"] == "demo/worker.py")
        assert entry["current"] in check.found
        assert entry["wanted"] in check.wanted
        assert "-worker_9 = 99" in result.drift
        assert "+EXTRA = 1" in result.drift
        assert states(result) == {"0001-first": "applied", "0002-second": "drifted", "0003-third": "applied"}
        assert (env.read("demo/worker.py") or b"").endswith(b"EXTRA = 1\n")
        assert not result.changed


@pytest.mark.parametrize("state", ["present", "absent"])
def test_restore_overwrites_drift(env: Env, maker: Maker, state: str) -> None:
    env.run(maker)
    (env.site / "demo/worker.py").write_bytes(b"broken = 1\n")
    (env.site / "demo/added.py").unlink()
    (env.site / "demo/engine.py").unlink()
    foretold = env.run(maker, state=state, restore=True, check_mode=True)
    assert (env.read("demo/worker.py"), foretold.changed, failed(foretold)) == (b"broken = 1\n", True, [])
    done = env.run(maker, state=state, restore=True)
    assert (done.changed, failed(done), done.diffs) == (True, [], foretold.diffs)
    if state == "present":
        env.assert_desired(maker)
    else:
        env.assert_pristine()


def test_one_drifted_file_holds_back_all(env: Env, maker: Maker) -> None:
    (env.site / "demo/sub/deep.py").write_bytes(b"mine = 1\n")
    before = {path: env.read(path) for path in PRISTINE}
    assert "file demo/sub/deep.py" in failed(env.run(maker))
    assert {path: env.read(path) for path in PRISTINE} == before
    assert env.read("demo/added.py") is None


def test_a_foreign_file_at_the_place_of_a_module_is_drift(env: Env, maker: Maker) -> None:
    (env.site / "demo/added.py").write_bytes(b"somebody = 'else'\n")
    assert failed(env.run(maker))[0] == "file demo/added.py"
    assert env.read("demo/added.py") == b"somebody = 'else'\n"


def test_wrong_version_is_refused_and_says_how_the_patches_would_fare(env: Env, maker: Maker) -> None:
    maker.version = "1.1"
    result = env.run(maker)
    assert failed(result) == ["series demo-1.1"]
    assert set(states(result).values()) == {"would apply"}
    env.assert_pristine()


def test_another_build_of_the_same_version_is_refused(env: Env, maker: Maker) -> None:
    maker.pristine = {**maker.pristine, "demo/engine.py": b"other = 1\n"}
    result = env.run(maker)
    assert failed(result) == ["file demo/engine.py"]
    assert "RECORD says" in result.checks.failed[0].found
    env.assert_pristine()


def test_a_wheel_that_has_the_module_itself(env: Env, maker: Maker) -> None:
    maker.module("demo/sub/__init__.py", b"OURS = 1\n")
    assert failed(env.run(maker)) == ["file demo/sub/__init__.py"]
    env.assert_pristine()


def test_obsolete_fails_unless_the_series_says_why_it_stays(env: Env) -> None:
    grep = {"grep": [{"file": "demo/engine.py", "pattern": "^engine_5 = 5$"}]}
    maker = standard()
    maker.edit("old", ("demo/engine.py", "engine_7 = 7\n", "engine_7 = 8\n"), probes=grep)
    maker.texts["0004-old"] = maker.texts["0004-old"].replace("-engine_7 = 7", "-engine_7 = 6")
    result = env.run(maker)
    assert (failed(result), states(result)["0004-old"]) == (["patch 0004-old"], "obsolete")
    env.assert_pristine()
    maker.entries[-1]["keep_when_obsolete"] = "other builds of this release lack it"
    kept = env.run(maker)
    assert (failed(kept), states(kept)["0004-old"], kept.changed) == ([], "obsolete", True)
    assert not env.run(maker).changed


def test_conflict_names_hunk_line_and_offset(env: Env) -> None:
    maker = standard()
    maker.texts["0002-second"] = maker.texts["0002-second"].replace("@@ -8,3 +8,3 @@", "@@ -11,3 +11,3 @@")
    result = env.run(maker)
    assert failed(result) == ["patch 0002-second"]
    assert (
        "demo/worker.py, hunk 1 (line 11): the lines are at line 8 instead (offset -3)" in result.checks.failed[0].found
    )
    assert result.checks.failed[0].remedy == "tools/series.py refresh writes its line numbers anew"
    env.assert_pristine()


def test_a_damaged_patch_file_is_not_to_be_refreshed(env: Env) -> None:
    maker = standard()
    maker.texts["0002-second"] = maker.texts["0002-second"].replace("-worker_9 = 9", "-worker_9 = 8")
    result = env.run(maker)
    assert "line 9 should be 'worker_9 = 8' and is 'worker_9 = 9'" in result.checks.failed[0].found
    assert result.checks.failed[0].remedy.startswith("no line number is at fault: restore 0002-second.patch")
    env.assert_pristine()


def test_code_that_does_not_compile_is_never_written(env: Env) -> None:
    maker = Maker().edit("bad", ("demo/engine.py", "engine_3 = 3\n", "engine_3 = (\n"))
    for check_mode in (True, False):
        result = env.run(maker, check_mode=check_mode)
        assert "does not compile" in result.checks.failed[0].found
        env.assert_pristine()


def test_missing_environment(env: Env, maker: Maker) -> None:
    nowhere = env.root / "nowhere"
    foretold = env.run(maker, environment=nowhere, check_mode=True)
    assert (foretold.changed, set(states(foretold).values()), failed(foretold)) == (True, {"would apply"}, [])
    assert failed(env.run(maker, environment=nowhere)) == ["environment"]
    assert failed(env.run(maker, environment=nowhere, state="audited", check_mode=True)) == ["environment"]
    gone = env.run(maker, environment=nowhere, state="absent")
    assert (gone.changed, failed(gone), len(gone.checks)) == (False, [], 1)
    assert not nowhere.exists()


def test_missing_distribution(env: Env, maker: Maker) -> None:
    other = Maker(distribution="absent-one")
    other.edit("x", ("demo/engine.py", "engine_3 = 3\n", "engine_3 = 5\n"))
    assert failed(env.run(other)) == ["distribution absent-one"]
    assert set(states(env.run(other, check_mode=True)).values()) == {"would apply"}
    assert failed(env.run(other, state="absent")) == []


def test_a_run_without_series_checks_nothing_and_fails(env: Env) -> None:
    assert failed(env.run()) == ["series"]


def test_two_copies_of_a_distribution_are_refused(env: Env, maker: Maker) -> None:
    lay_out(env.root, "demo", "0.9", {"demo_old/__init__.py": b""})
    result = env.run(maker)
    assert "installed 2 times" in result.checks.failed[0].found


def test_a_directory_in_the_place_of_a_file_is_named(env: Env, maker: Maker) -> None:
    (env.site / "demo/engine.py").unlink()
    (env.site / "demo/engine.py").mkdir()
    result = env.run(maker)
    assert failed(result) == ["file system"]
    assert "demo/engine.py" in result.checks.failed[0].found

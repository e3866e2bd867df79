"""Random series and random damage: what is on disk is pristine, wanted, or what somebody else put there."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .helpers import PRISTINE, Env, Maker, assert_clean

if TYPE_CHECKING:
    import pytest

PATHS = ("demo/engine.py", "demo/worker.py", "demo/sub/deep.py")
MODULES = ("demo/added.py", "demo/sub/new/more.py")


@dataclass(frozen=True)
class Step:
    action: str
    series: int
    path: str
    restore: bool


@st.composite
def makers(draw: st.DrawFn) -> Maker:
    maker = Maker()
    for number in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(PATHS))
        name = path.rsplit("/", 1)[1][:-3]
        line = draw(st.integers(2, 29))
        new = draw(st.sampled_from([f"{name}_{line} = 'n{number}'\n", f"a = {number}\nb = 2\n", ""]))
        old = f"{name}_{line} = {line}\n"
        if old.encode() in maker.now.get(path, PRISTINE[path]):
            maker.edit(f"p{number}", (path, old, new), probes={"grep": [{"file": path, "pattern": "."}]})
    if not maker.entries:
        maker.edit("one", (PATHS[0], "engine_5 = 5\n", "engine_5 = 6\n"))
    if draw(st.booleans()):
        maker.module(draw(st.sampled_from(MODULES)), f"M = {draw(st.integers(0, 2))}\n".encode())
    return maker


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(
            ["apply", "apply", "check", "audit", "absent", "absent all", "edit", "delete", "reinstall", "forget"]
        ),
        st.integers(0, 2),
        st.sampled_from([*PATHS, *MODULES]),
        st.booleans(),
    ),
    min_size=1,
    max_size=10,
)


def damage(env: Env, step: Step) -> None:
    file = env.site / step.path
    if step.action == "edit" and file.parent.is_dir():
        file.write_bytes(b"foreign = 1\n")
    elif step.action == "delete" and file.is_file():
        file.unlink()
    elif step.action == "reinstall":
        for path, content in PRISTINE.items():
            (env.site / path).write_bytes(content)
    elif step.action == "forget":
        shutil.rmtree(env.root / ".aerie", ignore_errors=True)


def contents(env: Env) -> dict[str, bytes | None]:
    return {path: env.read(path) for path in [*PATHS, *MODULES, "demo-1.0.dist-info/RECORD"]}


def run_step(env: Env, step: Step, series: list[Maker], managed: set[str]) -> None:
    maker = series[step.series]
    before = contents(env)
    state = {"audit": "audited", "absent": "absent", "absent all": "absent"}.get(step.action, "present")
    given_series = None if step.action == "absent all" else maker
    result = env.run(given_series, state=state, restore=step.restore, check_mode=step.action == "check")
    after = contents(env)
    if result.checks.failed or step.action in ("check", "audit"):
        assert after == before
        return
    assert result.changed == (after != before) or not result.diffs
    wanted = maker.desired() if step.action == "apply" else {}
    for path in managed if step.action != "absent all" else set():
        if step.action == "apply" and (path in maker.desired() or after[path] != before[path]):
            assert after[path] == wanted.get(path, PRISTINE.get(path)), path
    if step.action == "absent":
        for path in maker.desired():
            assert after[path] == PRISTINE.get(path), path
    assert not env.run(given_series, state=state, restore=step.restore).changed


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(series=st.lists(makers(), min_size=3, max_size=3), todo=steps)
def test_only_pristine_or_wanted_bytes_are_ever_written(
    tmp_path_factory: pytest.TempPathFactory, series: list[Maker], todo: list[Step]
) -> None:
    env = Env(tmp_path_factory.mktemp("random") / "env")
    managed = {path for maker in series for path in maker.desired()}
    allowed = {
        path: {PRISTINE.get(path), b"foreign = 1\n", None, *(maker.desired().get(path) for maker in series)}
        for path in managed
    }
    for step in todo:
        damage(env, step)
        if step.action in ("apply", "check", "audit", "absent", "absent all"):
            run_step(env, step, series, managed)
        for path in managed:
            assert env.read(path) in allowed[path]
        assert_clean(env.root)
    shutil.rmtree(env.root)

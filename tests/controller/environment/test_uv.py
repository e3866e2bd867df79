"""What uv is told: hashes that nothing switches off, where files come from, and where its cache lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ansible.module_utils.aerie.distributions.lock import Refusal
from ansible.module_utils.aerie.environment import uv
from ansible.module_utils.aerie.environment.converge import converge
from ansible.module_utils.aerie.environment.demand import Demand

from .conftest import Wheels, make_lock
from .test_build import names, site, snapshot

Make = Callable[..., Demand]


def test_wrong_digest_is_refused_on_a_clean_host(demand: Make, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"(?i)hash mismatch"):
        converge(demand(make_lock(alpha=("1.0", "0" * 64))), check_mode=False)
    assert not (tmp_path / "env").exists()
    assert names(tmp_path / "env.d") == []


def test_wrong_digest_is_refused_on_a_host_that_has_the_version(demand: Make, tmp_path: Path, lock_text: str) -> None:
    converge(demand(), check_mode=False)
    before = snapshot(tmp_path / "env.d")
    other = lock_text.replace(lock_text.split("sha256:")[1][:64], "0" * 64)
    assert converge(demand(other), check_mode=True).changed
    with pytest.raises(Refusal, match=r"(?i)hash mismatch"):
        converge(demand(other), check_mode=False)
    assert snapshot(tmp_path / "env.d") == before
    assert not converge(demand(), check_mode=False).changed


def test_same_version_with_one_byte_changed_is_refused(demand: Make, wheels: Wheels, lock_text: str) -> None:
    wheels.pin("alpha", "1.0", content="VERSION = '1,0'\n")
    with pytest.raises(Refusal, match=r"(?i)hash mismatch"):
        converge(demand(lock_text), check_mode=False)


@pytest.mark.parametrize(
    "switch",
    [
        {"UV_NO_VERIFY_HASHES": "1", "UV_VERIFY_HASHES": "0", "UV_REQUIRE_HASHES": "0", "PIP_REQUIRE_HASHES": "0"},
        {"XDG_CONFIG_HOME": "settings", "XDG_CONFIG_DIRS": "settings"},
        {"UV_CONFIG_FILE": "bad"},
        {"UV_OVERRIDE": "bad"},
        {"UV_CONSTRAINT": "bad"},
    ],
)
def test_no_variable_of_host_or_inventory_switches_hashes_off(
    demand: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, switch: dict[str, str]
) -> None:
    (tmp_path / "bad").write_text("alpha==0.1\n" if "CONFIG" not in str(switch) else "[pip]\nverify-hashes = false\n")
    # The settings of a user of the host.
    (tmp_path / "settings" / "uv").mkdir(parents=True)
    (tmp_path / "settings" / "uv" / "uv.toml").write_text("[pip]\nverify-hashes = false\nrequire-hashes = false\n")
    places = {"bad": str(tmp_path / "bad"), "settings": str(tmp_path / "settings")}
    switch = {name: places.get(value, value) for name, value in switch.items()}
    for name, value in switch.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Refusal, match=r"(?i)hash mismatch"):
        converge(demand(make_lock(alpha=("1.0", "0" * 64)), variables=switch), check_mode=False)


def test_no_uv_toml_of_the_host_sends_the_wheels_elsewhere(
    demand: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / "uv.toml").write_text(f'[pip]\ntarget = "{tmp_path}/elsewhere"\nno-binary = ["alpha"]\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert converge(demand(), check_mode=False).changed
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_without_hash_is_refused(demand: Make) -> None:
    with pytest.raises(Refusal, match="beta has no hash"):
        converge(demand("beta==2.0\n"), check_mode=False)


def test_hard_links_to_the_cache_are_used(demand: Make, tmp_path: Path) -> None:
    converge(demand(), check_mode=False)
    assert (site(tmp_path / "env") / "alpha.py").stat().st_nlink > 1


def test_cache_lies_on_the_filesystem_of_the_environment_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = {"user": 1, "home": 1, "data": 1}
    monkeypatch.setattr(uv, "device", lambda path: devices[path.relative_to(tmp_path).parts[0]])

    def folder(**variables: str) -> Path:
        variables = {"HOME": str(tmp_path / "user"), **variables}
        return uv.cache_folder(variables, tmp_path / "home", tmp_path / "data" / "env.d")

    assert folder(UV_CACHE_DIR="/x") == Path("/x")
    assert folder() == tmp_path / "user" / ".cache" / "uv"
    devices["user"] = 2
    assert folder() == tmp_path / "home" / "uv-cache"
    devices["home"] = 2
    assert folder() == tmp_path / "data" / "uv-cache"


def test_mirrors_of_pip_are_understood_and_python_variables_dropped() -> None:
    kept = uv.clean_variables(
        {"PIP_INDEX_URL": "https://mirror.example/simple", "PYTHONPATH": "/x", "HTTPS_PROXY": "p", "VIRTUAL_ENV": "/v"},
        {"UV_INDEX_SITE_USERNAME": "s"},
    )
    assert kept["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    assert kept["HTTPS_PROXY"] == "p"
    assert kept["UV_INDEX_SITE_USERNAME"] == "s"
    assert not {"PYTHONPATH", "VIRTUAL_ENV"} & set(kept)
    chosen = uv.clean_variables({"PIP_INDEX_URL": "a", "UV_DEFAULT_INDEX": "b"}, {})
    assert chosen["UV_DEFAULT_INDEX"] == "b"

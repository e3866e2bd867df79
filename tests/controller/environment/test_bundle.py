"""Bundles: made by the real pip from tiny real wheels, used by the real uv without any index."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible.module_utils.aerie.environment import bundle
from ansible.module_utils.aerie.environment import vllm_wheel as wheel
from ansible.module_utils.aerie.environment.converge import converge
from ansible.module_utils.aerie.environment.demand import Demand
from ansible.module_utils.aerie.shared.digests import sha256_bytes, sha256_file
from ansible.module_utils.aerie.shared.refusal import Refusal

from .conftest import UV, Wheels, make_lock
from .servers import COMMIT, TAG, VERSION, Server, publish

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ".".join(platform.python_version_tuple()[:2])
Make = Callable[..., Demand]


def test_requirements_are_those_of_the_host_s_python() -> None:
    digest = "a" * 64
    text = (
        f"one==1 ; python_full_version < '3.11' --hash=sha256:{digest}\n"
        f"one==2 ; python_full_version >= '3.11' \\\n    --hash=sha256:{digest} \\\n    --hash=sha256:{'b' * 64}\n"
        f"nvidia==1 ; sys_platform == 'win32' --hash=sha256:{digest}\n"
    )
    assert bundle.requirements(text, "3.10.0").split() == ["one==1", f"--hash=sha256:{digest}"]
    assert bundle.requirements(text, "3.12.0").split()[0] == "one==2"
    assert "b" * 64 in bundle.requirements(text, "3.12.0")
    assert "nvidia" not in bundle.requirements(text, "3.12.0")


def test_platforms_end_at_the_host_s_c_library() -> None:
    tags = bundle.platforms("2.28", "x86_64")
    assert tags[0] == "manylinux_2_28_x86_64"
    assert {"manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64"} <= set(tags)
    assert "manylinux_2_31_x86_64" not in tags


@pytest.fixture
def play(tmp_path: Path, wheels: Wheels, lock_text: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The module under the real ansible-playbook; pip knows the folder of wheels only."""
    (tmp_path / "tiny.lock").write_text(lock_text)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    task: dict[str, Any] = {
        "path": str(tmp_path / "bundle"), "stack": "tiny", "lock": str(tmp_path / "tiny.lock"), "python": PYTHON,
        "glibc": "2.28", "machine": platform.machine(), "model": str(tmp_path / "model"),
    }  # fmt: skip

    def call(*arguments: str, find: Path = wheels.folder, **more: Any) -> subprocess.CompletedProcess[str]:
        pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(find), "PIP_CONFIG_FILE": os.devnull}
        tasks = [{"name": "Bundle", "stack_bundle": {**task, "environment": pip, **more}}]
        (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "h", "gather_facts": False, "tasks": tasks}]))
        hosts = {"all": {"hosts": {"h": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}}}
        (tmp_path / "hosts.json").write_text(json.dumps(hosts))
        reach = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "AERIE_REPORTS": str(tmp_path / "reports")}
        line = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.json", "play.yml", *arguments]
        return subprocess.run(
            line, cwd=tmp_path, env={**os.environ, **reach}, text=True, capture_output=True, check=False
        )

    return call


@pytest.fixture
def bundled(tmp_path: Path, wheels: Wheels, lock_text: str) -> Path:
    """A whole bundle of the tiny lock."""
    folder = tmp_path / "usb"
    (folder / "bin").mkdir(parents=True)
    shutil.copytree(wheels.folder, folder / "wheels")
    shutil.copy2(UV, folder / "bin" / "uv")
    digest = sha256_bytes(lock_text.encode())
    bundle.write(folder, {"stack": "tiny", "lock_sha256": digest, "python": PYTHON, "machine": platform.machine()})
    return folder


def gapped(demand: Make, folder: Path, tmp_path: Path, **more: Any) -> Demand:
    """A demand that knows no other place: an index that does not exist, and a cache that is empty."""
    sources = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_CACHE_DIR": str(tmp_path / "empty")}
    own = {"uv": str(tmp_path / "home" / "bin" / "uv"), "uv_sha256": sha256_file(Path(UV))}
    made = demand(bundle=folder, **{**own, **more})
    made.variables = sources
    return made


@pytest.mark.slow
def test_made_whole_then_left_alone_then_mended(play: Any, tmp_path: Path) -> None:
    told = play("--check")
    assert "changed=1" in told.stdout, told.stdout
    assert not (tmp_path / "bundle").exists()
    assert "changed=1" in play().stdout
    files = bundle.read(tmp_path / "bundle")["files"]
    assert {"wheels/alpha-1.0-py3-none-any.whl", "bin/uv", "lock.txt", "model/config.json"} <= set(files)
    # A whole bundle asks no network: nothing could be found there now.
    assert "changed=0" in play(find=tmp_path / "nowhere").stdout
    (tmp_path / "bundle" / "wheels" / "alpha-1.0-py3-none-any.whl").write_bytes(b"cut")
    assert "changed=1" in play().stdout
    assert bundle.damages(tmp_path / "bundle", bundle.read(tmp_path / "bundle")) == []


def test_a_wheel_with_another_digest_makes_no_bundle(
    play: Any, wheels: Wheels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_REQUIRE_HASHES", "0")
    wheels.pin("beta", "2.0", "SECRETLY = 'another'\n")
    failed = play()
    assert failed.returncode == 2
    assert "HASHES" in failed.stdout
    assert bundle.read(tmp_path / "bundle") == {}


@pytest.mark.slow
def test_a_nightly_is_bundled_by_its_recorded_digest_and_installed_from_the_bundle(
    play: Any, demand: Make, lock_text: str, tmp_path: Path
) -> None:
    record = tmp_path / "stacks" / "w.lock"
    with Server(tmp_path / "index").running() as index:
        digest = publish(index.root, COMMIT, ["cu129"])
        source = {"channel": "nightly", "commit": COMMIT, "variant": "cu129", "cuda": "12.8", "index_url": index.url,
                  "machine": TAG.rpartition("17_")[2]}  # fmt: skip
        asked = {"wheel": source, "wheel_record": str(record)}
        done = play(**asked, trust_first_download=True)
        assert "changed=1" in done.stdout, done.stdout
    assert digest in record.read_text()
    assert f"wheels/vllm-{VERSION}-{TAG}.whl" in bundle.read(tmp_path / "bundle")["files"]
    whole = lock_text + wheel.pin_line("vllm", VERSION, digest)
    given = wheel.Source("nightly", commit=COMMIT, variant="cu129", cuda="12.8", sha256=digest)
    made = gapped(demand, tmp_path / "bundle", tmp_path, lock=whole, wheel=given)
    assert converge(made, check_mode=False).after["vllm"] == VERSION


def test_an_environment_comes_from_a_bundle_alone(demand: Make, bundled: Path, tmp_path: Path) -> None:
    first = converge(gapped(demand, bundled, tmp_path), check_mode=False)
    assert first.after == {"alpha": "1.0", "beta": "2.0"}
    # Nothing to do asks for no bundle: the medium may be gone.
    shutil.rmtree(bundled)
    assert not converge(gapped(demand, bundled, tmp_path), check_mode=False).changed


def test_damage_is_named_by_file_before_anything_is_done(demand: Make, bundled: Path, tmp_path: Path) -> None:
    wheel = bundled / "wheels" / "alpha-1.0-py3-none-any.whl"
    content = bytearray(wheel.read_bytes())
    content[-1] ^= 1
    wheel.write_bytes(content)
    (bundled / "bin" / "uv").unlink()
    (bundled / "wheels" / "stray-1.0-py3-none-any.whl").write_bytes(b"")
    for check_mode in (True, False):
        with pytest.raises(bundle.BundleRefusal) as caught:
            converge(gapped(demand, bundled, tmp_path), check_mode)
        assert {check.name: check.found for check in caught.value.problems} == {
            "bundle bin/uv": "missing",
            "bundle wheels/alpha-1.0-py3-none-any.whl": "another sha256",
            "bundle wheels/stray-1.0-py3-none-any.whl": "not in the manifest",
        }
    assert not (tmp_path / "env.d").exists()
    assert not (tmp_path / "home").exists()


def test_the_lock_decides_even_when_the_manifest_was_made_to_fit(
    demand: Make, bundled: Path, tmp_path: Path, wheels: Wheels, lock_text: str
) -> None:
    wheels.pin("alpha", "1.0", "VERSION = 'forged'\n")
    shutil.copy2(wheels.folder / "alpha-1.0-py3-none-any.whl", bundled / "wheels")
    rewritten(bundled)
    with pytest.raises(Refusal, match="ash mismatch"):
        converge(gapped(demand, bundled, tmp_path), check_mode=False)
    assert not (tmp_path / "env").exists()


def test_a_bundle_of_another_lock_is_refused(demand: Make, bundled: Path, tmp_path: Path, wheels: Wheels) -> None:
    other = make_lock(alpha=wheels.pin("alpha", "1.1"))
    with pytest.raises(bundle.BundleRefusal, match="lock_sha256"):
        converge(gapped(demand, bundled, tmp_path, lock=other), check_mode=False)
    with pytest.raises(bundle.BundleRefusal, match="missing, or not readable"):
        converge(gapped(demand, tmp_path / "nowhere", tmp_path), check_mode=False)


def rewritten(folder: Path) -> None:
    """The manifest of what lies there now, as a forger would write it."""
    bundle.write(folder, {k: v for k, v in bundle.read(folder).items() if k not in ("schema", "files")})


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_forged_uv_is_never_run(demand: Make, bundled: Path, tmp_path: Path, check_mode: bool) -> None:
    (bundled / "bin" / "uv").write_text(f'#!/bin/sh\ntouch {tmp_path}/ran\nexec {UV} "$@"\n')
    rewritten(bundled)
    with pytest.raises(bundle.BundleRefusal, match="another uv"):
        converge(gapped(demand, bundled, tmp_path), check_mode)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "home").exists()


def test_a_uv_of_the_host_is_used_and_left_as_it_is(demand: Make, bundled: Path, tmp_path: Path) -> None:
    own = tmp_path / "own-uv"
    own.write_text(f'#!/bin/sh\nexec {UV} "$@"\n')
    own.chmod(0o755)
    before = own.read_bytes()
    assert converge(gapped(demand, bundled, tmp_path, uv=str(own), uv_sha256=""), check_mode=False).changed
    assert own.read_bytes() == before


def test_a_manifest_without_files_is_none(bundled: Path) -> None:
    manifest = json.loads((bundled / bundle.MANIFEST).read_text())
    del manifest["files"]
    (bundled / bundle.MANIFEST).write_text(json.dumps(manifest))
    assert bundle.read(bundled) == {}

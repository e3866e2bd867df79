"""The digest of a wheel by commit: asked for, trusted once, recorded on the controller, and held to afterwards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ansible.module_utils.aerie.distributions import lock
from ansible.module_utils.aerie.environment import vllm_wheel, wheel_record
from ansible.module_utils.aerie.environment.network import WheelRefusal
from ansible.module_utils.aerie.environment.wheel_record import RecordedWheel
from ansible.module_utils.aerie.shared.refusal import Refusal

from .servers import COMMIT, TAG, VERSION, Server, publish
from .test_module import Play, play, section  # noqa: F401

SOURCE = vllm_wheel.Source("nightly", commit=COMMIT, variant="cu129")
FIRST, SECOND = RecordedWheel(VERSION, "1" * 64), RecordedWheel(VERSION, "2" * 64)


def never() -> RecordedWheel:
    raise AssertionError("nothing may be downloaded")


def test_nothing_is_downloaded_without_a_digest_or_trust(tmp_path: Path) -> None:
    with pytest.raises(WheelRefusal, match="no digest is known") as caught:
        wheel_record.settle(tmp_path / "w.lock", SOURCE, False, never, False)
    assert "vllm_trust_first_download" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_the_first_digest_is_recorded_as_a_lock_and_holds(tmp_path: Path) -> None:
    path = tmp_path / "wheels" / "w.lock"
    assert wheel_record.settle(path, SOURCE, True, never, True) is None
    assert not path.exists()
    assert wheel_record.settle(path, SOURCE, True, lambda: FIRST, False) == FIRST
    assert lock.parse(path.read_text()) == [lock.Pin("vllm", VERSION, "")]
    assert f"--hash=sha256:{'1' * 64}" in path.read_text()
    assert COMMIT in path.read_text()
    assert wheel_record.settle(path, SOURCE, False, never, False) == FIRST


def test_another_digest_than_the_recorded_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.lock"

    def meanwhile() -> RecordedWheel:
        """Another host of the same run was faster, and got another file."""
        wheel_record.settle(path, SOURCE, True, lambda: FIRST, False)
        return SECOND

    with pytest.raises(WheelRefusal, match="2222"):
        wheel_record.settle(path, SOURCE, True, meanwhile, False)
    given = vllm_wheel.Source("nightly", commit=COMMIT, variant="cu129", sha256="2" * 64)
    with pytest.raises(WheelRefusal) as caught:
        wheel_record.settle(path, given, True, never, False)
    assert "1111" in caught.value.wanted
    assert "1111" in path.read_text()


def test_a_wheel_of_the_site_is_recorded_without_a_download(tmp_path: Path) -> None:
    source = vllm_wheel.Source("wheel", location=f"/x/vllm-{VERSION}-{TAG}.whl", sha256="1" * 64)
    assert wheel_record.settle(tmp_path / "w.lock", source, False, never, False) == FIRST


@pytest.mark.parametrize("text", ["vllm==1\n", "vllm==1 --hash=sha256:x\n", "other==1 --hash=sha256:" + "1" * 64])
def test_a_record_that_is_no_lock_of_one_wheel_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "w.lock").write_text(text)
    with pytest.raises(Refusal, match="one pin of vllm with one hash"):
        wheel_record.settle(tmp_path / "w.lock", SOURCE, True, never, False)


@pytest.mark.slow
def test_from_the_first_download_to_a_changed_wheel_under_ansible(play: Play, tmp_path: Path) -> None:  # noqa: F811
    record, root = tmp_path / "stacks" / "w.lock", tmp_path / "index"
    with Server(root).running() as index:
        digest = publish(root, COMMIT, ["cu129"])
        asked: dict[str, Any] = {
            "wheel": {"channel": "nightly", "commit": COMMIT, "variant": "cu129", "cuda": "12.8",
                      "machine": TAG.rpartition("17_")[2], "index_url": index.url},
            "wheel_record": str(record),
        }  # fmt: skip
        told = play("--check", **asked, trust_first_download=True)
        assert "changed=1" in told.stdout, told.stdout
        assert "would be downloaded" in json.dumps(section(tmp_path))
        assert not record.exists()
        first = play(**asked, trust_first_download=True)
        assert "changed=1" in first.stdout, first.stdout
        assert digest in record.read_text()
        assert section(tmp_path)["data"]["moves"]["added"][-1] == f"vllm {VERSION}"
        # An image brings such an environment: without a record its version and its commit are looked at.
        absent = {**asked, "wheel_record": str(tmp_path / "none.lock"), "source": "existing"}
        other = play(**{**absent, "wheel": {**asked["wheel"], "commit": "b" * 40}})
        assert other.returncode == 2
        assert f"a build of commit {'b' * 40}" in other.stdout
        # From here on the record decides, trust or not; a second host gets the changed file and refuses it.
        publish(root, COMMIT, ["cu129"], content="VERSION = 'changed'\n")
        for place in ("env.d", "wheels"):
            shutil.rmtree(tmp_path / place)
        (tmp_path / "env").unlink()
        second = play(**asked, trust_first_download=True)
        assert second.returncode == 2
        assert "the file has changed since its digest was recorded" in second.stdout
        assert not (tmp_path / "env").exists()
        assert digest in record.read_text()

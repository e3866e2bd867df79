"""What is proved of a wheel before its digest is recorded."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible.module_utils.aerie.environment import vllm_wheel, wheel_record
from ansible.module_utils.aerie.environment.file_digest import file_digest
from ansible.module_utils.aerie.environment.network import WheelRefusal
from ansible.module_utils.aerie.environment.wheel_record import RecordedWheel

from .servers import COMMIT, TAG, VERSION, Server, publish
from .test_nightly import binaries_of

FILE = f"vllm-{VERSION}-{TAG}.whl"
INFO = f"vllm-{VERSION}.dist-info"
PLAIN = {
    "vllm/__init__.py": b"VERSION = 1\n", f"{INFO}/METADATA": f"Name: vllm\nVersion: {VERSION}\n\nWords".encode(),
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\n",
}  # fmt: skip


def record_of(files: dict[str, bytes]) -> bytes:
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return ("".join(lines) + f"{INFO}/RECORD,,\n").encode()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "index").running() as server:
        publish(server.root, COMMIT, ["cu129"])
        yield server


def first(index: Server, tmp_path: Path, files: dict[str, bytes], record: bytes, cuda: str = "") -> None:
    """The first download of a wheel of these files, as a run with `vllm_trust_first_download` does it."""
    with zipfile.ZipFile(index.root / COMMIT / FILE, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in [*files.items(), (f"{INFO}/RECORD", record)]:
            if record or name in files:
                archive.writestr(name.removesuffix(" again"), content)
    source = vllm_wheel.Source("nightly", machine=TAG.rpartition("17_")[2], index_url=index.url, commit=COMMIT,
                          variant="cu129", cuda=cuda)  # fmt: skip

    def fetch() -> RecordedWheel:
        got = vllm_wheel.obtain(source, tmp_path / "wheels", "", {})
        return RecordedWheel(got.version, got.sha256)

    wheel_record.settle(tmp_path / "w.lock", source, True, fetch, False)


def test_a_whole_wheel_is_recorded(index: Server, tmp_path: Path) -> None:
    first(index, tmp_path, PLAIN, record_of(PLAIN))
    assert file_digest(index.root / COMMIT / FILE) in (tmp_path / "w.lock").read_text()


@pytest.mark.parametrize(
    ("changes", "record", "says"),
    [
        (
            {"vllm/__init__.py": b"VERSION = 2\n"},
            record_of(PLAIN),
            "vllm/__init__.py differs from its digest in RECORD",
        ),
        ({"vllm/more.pth": b"import os\n"}, record_of(PLAIN), "vllm/more.pth is not in RECORD with a digest"),
        ({}, record_of({**PLAIN, "vllm/lost.py": b""}), "vllm/lost.py is missing"),
        ({"vllm/__init__.py again": b"VERSION = 2\n"}, record_of(PLAIN), "vllm/__init__.py is there twice"),
        ({}, b"vllm/__init__.py,,\n", "vllm/__init__.py is not in RECORD with a digest"),
        ({}, b"", "0 RECORDs"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_not_as_the_wheel_records_it_is_refused(
    index: Server, tmp_path: Path, changes: dict[str, bytes], record: bytes, says: str
) -> None:
    with pytest.raises(WheelRefusal, match=says):
        first(index, tmp_path, {**PLAIN, **changes}, record)
    assert not (tmp_path / "w.lock").exists()
    assert list((tmp_path / "wheels").iterdir()) == []


@pytest.mark.parametrize(
    ("library", "cuda", "says"),
    [
        ("libcudart.so.12", "12.8", ""),
        ("libcudart.so.13", "12.8", r"vllm/_C\.abi3\.so wants CUDA 13"),
        ("libm.so.6", "12.8", r"vllm/_C\.abi3\.so wants CUDA none"),
        ("libcudart.so.12", "", r"vllm/_C\.abi3\.so wants CUDA 12"),
        ("", "12.8", "a build without compiled operators"),
        ("cut", "12.8", "cut short"),
    ],
)
def test_operators_for_another_cuda_are_refused(
    index: Server, tmp_path: Path, library: str, cuda: str, says: str
) -> None:
    files = dict(PLAIN)
    if library:
        built = binaries_of(tmp_path / "built", library if library != "cut" else "libcudart.so.12")
        content = next(built.glob("lib/python*/site-packages/vllm/_C.*")).read_bytes()
        files["vllm/_C.abi3.so"] = content[:80] if library == "cut" else content
    if not says:
        first(index, tmp_path, files, record_of(files), cuda)
        assert (tmp_path / "w.lock").exists()
        return
    with pytest.raises(WheelRefusal, match=says):
        first(index, tmp_path, files, record_of(files), cuda)
    assert not (tmp_path / "w.lock").exists()


def test_a_wheel_for_a_newer_c_library_than_the_stack_s_is_not_taken(index: Server, tmp_path: Path) -> None:
    page = index.root / COMMIT / "cu129" / "vllm" / "metadata.json"
    newer = "manylinux_2_39"
    page.write_text(json.dumps(json.loads(page.read_text().replace("manylinux_2_17", newer))))
    source = vllm_wheel.Source("nightly", machine=TAG.rpartition("17_")[2], index_url=index.url, commit=COMMIT,
                          variant="cu129", glibc="2.31")  # fmt: skip
    with pytest.raises(WheelRefusal, match=newer) as caught:
        vllm_wheel.obtain(source, tmp_path / "wheels", "", {})
    assert "glibc 2.31" in caught.value.wanted

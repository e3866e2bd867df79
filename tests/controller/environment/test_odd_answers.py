"""Indexes, records and settings of a host that are out of the ordinary: named, refused, and without their secrets."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ansible.module_utils.aerie.environment import network, vllm_wheel, wheel_record
from ansible.module_utils.aerie.environment.network import Network, WheelRefusal
from ansible.module_utils.aerie.shared.refusal import Refusal

from .servers import COMMIT, TAG, VERSION, Server, publish
from .test_wheel_record import FIRST, SOURCE, never

ROOT = Path(__file__).resolve().parents[3]
FILE = f"vllm-{VERSION}-{TAG}.whl"
PAIR = f"Basic {base64.b64encode(b'joe:p@ss').decode()}"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "index").running() as server:
        publish(server.root, COMMIT, ["cu129"])
        yield server


def fetch(index: Server, tmp_path: Path) -> vllm_wheel.Wheel:
    source = vllm_wheel.Source("nightly", machine=TAG.rpartition("17_")[2], index_url=index.url, commit=COMMIT,
                          variant="cu129", python=">=3.12,<3.13")  # fmt: skip
    return vllm_wheel.obtain(source, tmp_path / "wheels", "", {})


def renamed(index: Server, old: str, new: str) -> None:
    """Another platform or Python in the names of file and list."""
    (index.root / COMMIT / FILE).rename(index.root / COMMIT / FILE.replace(old, new))
    page = index.root / COMMIT / "cu129" / "vllm" / "metadata.json"
    page.write_text(page.read_text().replace(old, new))


def broken_inside(index: Server, _: Path) -> None:
    """A whole archive in which one compressed file is damaged."""
    path = index.root / COMMIT / FILE
    name = f"vllm-{VERSION}.dist-info/METADATA"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, "Name: vllm\n" * 9)
        start = archive.getinfo(name).header_offset + 30 + len(name)
    content = bytearray(path.read_bytes())
    content[start : start + 4] = b"\xff" * 4
    path.write_bytes(content)


def without_list(index: Server, _: Path) -> None:
    (index.root / COMMIT / "cu129" / "vllm" / "metadata.json").unlink()


def deep_list(index: Server, _: Path) -> None:
    (index.root / COMMIT / "cu129" / "vllm" / "metadata.json").write_text("[" * 100_000)


@pytest.mark.parametrize(
    ("prepare", "found", "remedy"),
    [
        (broken_inside, "not an intact wheel", "damaged copy"),
        (without_list, "this commit has cu129, but not its list", "mirror needs metadata.json"),
        (deep_list, "no list of wheels", "vllm_index_url"),
        (lambda index, _: renamed(index, "manylinux_2_17", "macosx_11_0"), "lists", "vllm_commit"),
        (lambda index, _: renamed(index, "cp38-abi3", "cp311-cp311"), "lists", "vllm_commit"),
    ],
)
def test_an_odd_index_is_named_and_leaves_nothing(
    index: Server, tmp_path: Path, prepare: Callable[[Server, Path], None], found: str, remedy: str
) -> None:
    prepare(index, tmp_path)
    with pytest.raises(WheelRefusal) as caught:
        fetch(index, tmp_path)
    assert found in caught.value.found
    assert remedy in caught.value.remedy
    assert list((tmp_path / "wheels").iterdir()) == []


def test_what_a_killed_download_left_goes_and_what_another_loads_stays(index: Server, tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in (".wheel-left", ".wheel-running"):
        (folder / name).write_bytes(b"PK half")
    with (folder / ".wheel-running").open("rb") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        fetch(index, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == [".wheel-running", FILE]


@pytest.fixture
def guarded() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server that wants a name and a password and then leads on; what was asked, with the credentials that came."""
    asked: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.headers["Authorization"]
            asked.append((self.path, given))
            known = self.path == "/open" or given == PAIR
            self.send_response((302 if self.path == "/lead" else 200) if known else 401)
            self.send_header("Location", "/open")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_password_of_an_address_goes_to_its_host_alone(guarded: tuple[str, list[Any]]) -> None:
    host, asked = guarded
    assert network.text(Network({}), f"http://joe:p%40ss@{host}/lead") == ""
    assert asked == [("/lead", PAIR), ("/open", None)]
    with pytest.raises(WheelRefusal, match="HTTP 401") as caught:
        network.text(Network({}), f"http://joe:wrong@{host}/lead")
    assert "name:password@" in caught.value.remedy
    assert "wrong" not in caught.value.found


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ("https://joe:pw@h.org/a/x.whl: HTTP 404", "https://***@h.org/a/x.whl: HTTP 404"),
        ("vllm_wheel: https://token@h.org/x.whl?sig=a%2Fb&e=1", "vllm_wheel: https://***@h.org/x.whl?***"),
        ("https://h.org/x.whl?sig=a: cut after 1 of 2 bytes", "https://h.org/x.whl?***: cut after 1 of 2 bytes"),
        ("https://h.org/a@b/x.whl", "https://h.org/a@b/x.whl"),
    ],
)
def test_no_secret_of_an_address_is_told(found: str, shown: str) -> None:
    error = WheelRefusal(found, "", "")
    assert (error.found, str(error)) == (shown, f"vLLM wheel: {shown}")


@pytest.mark.parametrize(("code", "says"), [(407, "HTTPS_PROXY"), (302, "circles"), (503, "later")])
def test_each_refusal_of_a_server_has_its_own_remedy(code: int, says: str) -> None:
    assert says in network.refusal("http://h", code).remedy


@pytest.mark.parametrize("url", ["h.org/index", "file:///tmp/index", "ftp://h.org/index"])
def test_what_is_no_web_address_is_told(url: str) -> None:
    with pytest.raises(WheelRefusal, match="not an address of http or https"):
        network.text(Network({}), url)


def test_a_record_of_another_commit_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    path = tmp_path / "w.lock"
    path.write_text(vllm_wheel.pin_line("vllm", f"0.16.0rc2.dev400+g{'b' * 9}", "1" * 64))
    for dry in (True, False):
        with pytest.raises(WheelRefusal, match=r"records 0\.16\.0rc2\.dev400") as caught:
            wheel_record.settle(path, SOURCE, True, never, dry)
        assert COMMIT in caught.value.wanted
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(Refusal, match=str(path)):
        wheel_record.settle(path, SOURCE, True, lambda: FIRST, False)


def test_the_record_of_a_signed_address_is_named_by_the_file_alone(tmp_path: Path) -> None:
    values = {
        "vllm_channel": "wheel", "vllm_wheel": f"https://h.org/{FILE}?sig=secret", "aerie_checkout": str(ROOT),
        "ml_env_lock": "l", "told": "{{ [ml_env_wheel_record | basename, aerie_locks | length] }}",
    }  # fmt: skip

    def told(**more: str) -> Any:
        (tmp_path / "more.json").write_text(json.dumps({**values, **more}))
        line = [sys.executable, "-m", "ansible", "adhoc", "-i", "localhost,", "-c", "local", "localhost"]
        line += ["-m", "debug", "-a", "var=told", "-e", f"@{ROOT}/playbooks/vars/aerie.yml", "-e", "@more.json"]
        variables = {**os.environ, "ANSIBLE_CONFIG": str(tmp_path / "none.cfg")}
        done = subprocess.run(line, cwd=tmp_path, env=variables, text=True, capture_output=True, check=True)
        return json.loads(done.stdout[done.stdout.index("{") :])["told"]

    assert told() == [FILE.replace(".whl", ".lock"), 2]
    # An empty channel is the default one.
    assert told(vllm_channel="")[1] == 1

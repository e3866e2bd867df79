"""Passwords of proxies, indexes and mirrors stand in no output, at any verbosity, and messages stay readable."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import basic

from ansible.module_utils.aerie.module_io import secrets
from library import vllm_wheel

from .conftest import make_lock
from .servers import COMMIT, TAG, VERSION, Server

ROOT = Path(__file__).resolve().parents[3]


class Module:
    """The part of an Ansible module that is filled."""

    def __init__(self, *values: str) -> None:
        self.no_log_values = set(values)


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("HTTPS_PROXY", "http://joe:pw@proxy:3128", {"joe:pw", "pw"}),
        ("https_proxy", "joe:pw@proxy:3128", {"joe:pw", "pw"}),
        ("HTTPS_PROXY", "http://joe:p@s@proxy", {"joe:p@s", "p@s"}),
        ("UV_DEFAULT_INDEX", "https://joe:p%40s@h/simple", {"joe:p%40s", "joe:p@s", "p%40s", "p@s"}),
        ("UV_INDEX", "a=https://joe:one@h/x b=https://tok@h/y", {"joe:one", "one", "tok"}),
        ("UV_INDEX_URL", "https://tok:x-oauth-basic@h/simple", {"tok:x-oauth-basic", "tok"}),
        ("UV_INDEX_URL", "https://h/simple?key=abc", {"key=abc"}),
        ("UV_INDEX_SITE_PASSWORD", "pw", {"pw"}),
        ("UV_INDEX_SITE_USERNAME", "tok", {"tok"}),
        ("HF_TOKEN", "tok", {"tok"}),
        ("AWS_SECRET_ACCESS_KEY", "tok", {"tok"}),
        ("UV_INDEX_SITE_PASSWORD", "", set()),
        ("UV_DEFAULT_INDEX", "https://mirror/simple/a@b", set()),
        ("UV_CACHE_DIR", "/var/a@b", set()),
        ("UV_OFFLINE", "1", set()), ("HF_TOKEN", None, set()),
    ],
)  # fmt: skip
def test_only_the_secret_parts_are_hidden(name: str, value: str | None, hidden: set[str]) -> None:
    found = secrets.of_variables({name: value})
    # As a part of another it is hidden too.
    assert {one for one in found if "%" not in one or one in (value or "")} == hidden
    module = Module("/var/cache", "1")
    secrets.hide(module, {name: value}, {})
    assert module.no_log_values == found


def test_a_name_beside_its_password_is_none() -> None:
    pair = {"UV_INDEX_SITE_USERNAME": "joe", "UV_INDEX_SITE_PASSWORD": "pw"}
    assert secrets.of_variables(pair) == {"pw"}


def test_what_installers_read_of_the_host_is_hidden_and_nothing_else() -> None:
    module = Module()
    host = {"PIP_INDEX_URL": "https://joe:pw@h", "http_proxy": "http://a:b1@h", "SOME_TOKEN": "1", "HOME": "/root"}
    secrets.hide(module, {}, host, "https://h.org/x.whl?sig=s", None, "")
    assert module.no_log_values == {"joe:pw", "joe%3Apw", "pw", "a:b1", "a%3Ab1", "b1", "sig=s", "sig%3Ds"}


def test_the_host_s_log_gets_none_of_these_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ansible writes the options to the host's log as the module begins."""
    said: list[str] = []
    monkeypatch.setattr(basic.AnsibleModule, "log", lambda _, message, **__: said.append(message))
    given = {"source": {"index_url": "http://joe:pw1@h"}, "home": str(tmp_path), "environment": {"HF_TOKEN": "pw2"}}
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode())
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
    with pytest.raises(SystemExit):
        vllm_wheel.main()
    assert "pw1" not in capsys.readouterr().out
    assert said
    assert not any("pw1" in one or "pw2" in one for one in said)


@pytest.mark.slow
def test_no_password_is_told_by_a_play_that_fails_at_any_verbosity(tmp_path: Path) -> None:
    """Every task that gets them, against a proxy and an index that refuse."""
    (tmp_path / "tiny.lock").write_text(make_lock(alpha=("1.0", "a" * 64)))
    host = f"wheels{os.getpid()}.invalid"
    with Server(tmp_path / "www").running() as server:
        port = server.url.rpartition(":")[2]
        proxy = f"http://joe:hush-proxy%40x@127.0.0.1:{port}"
        reach = {
            "HTTP_PROXY": proxy, "UV_DEFAULT_INDEX": f"http://joe:hush-index@{host}/simple", "UV_HTTP_RETRIES": "0",
            "UV_INDEX_SITE_PASSWORD": "hush-site", "UV_CACHE_DIR": str(tmp_path / "cache"),
            "PIP_INDEX_URL": f"http://joe:hush-pip@{host}/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull,
        }  # fmt: skip
        wheel = {
            "channel": "nightly", "commit": COMMIT, "variant": "cu129", "cuda": "12.8",
            "index_url": f"http://joe:hush-mirror@{host}/x",
        }  # fmt: skip
        signed = f"http://tok-hush-user@{host}/vllm-{VERSION}-{TAG}.whl?sig=hush-sig:and-hush"
        given = {
            "path": str(tmp_path / "env"), "lock": str(tmp_path / "tiny.lock"), "stack": "tiny", "home": str(tmp_path),
            "python": sys.executable, "python_versions": ">=3.10,<3.15", "environment": reach,
            "wheel_record": str(tmp_path / "w.lock"), "trust_first_download": True,
        }  # fmt: skip
        file = {"channel": "wheel", "machine": TAG.rpartition("17_")[2], "location": signed, "sha256": "b" * 64}
        bundle = {
            "path": str(tmp_path / "usb"), "stack": "tiny", "lock": given["lock"], "glibc": "2.28",
            "python": "3.12", "machine": platform.machine(), "environment": reach,
        }  # fmt: skip
        program = {"python": "/nowhere", "program": "/nowhere", "environment": reach}
        tasks: list[dict[str, Any]] = [
            {"uv_environment": given},
            {"uv_environment": {**given, "wheel": wheel}},
            {"uv_environment": {**given, "wheel": file, "wheel_record": str(tmp_path / "f.lock")}},
            {"stack_bundle": bundle},
            {"host_program": {**program, "command": "fetch-model", "spec": {}}},
            {"host_job": {**program, "job_dir": str(tmp_path / "job"), "spec": {}}},
        ]
        for task in tasks:
            task["ignore_errors"] = True
        (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "h", "gather_facts": False, "tasks": tasks}]))
        hosts = {"all": {"hosts": {"h": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}}}
        (tmp_path / "hosts.json").write_text(json.dumps(hosts))
        paths = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "AERIE_REPORTS": str(tmp_path / "reports")}
        line = [sys.executable, "-m", "ansible", "playbook", "-vvvvv", "-i", "hosts.json", "play.yml"]
        environment = {**os.environ, **paths}
        done = subprocess.run(line, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)
    assert f"ignored={len(tasks)}" in done.stdout.replace(" ", ""), done.stdout + done.stderr
    # What is no secret is told: without it nobody could find the fault.
    for told in (f"@{host}/simple", "HTTP 404", "UV_CACHE_DIR", str(tmp_path / "cache"), "pip download ended with"):
        assert told in done.stdout, told
    written = [path.read_text() for path in (tmp_path / "reports").rglob("*") if path.is_file()]
    assert written
    for text in (done.stdout, done.stderr, *written):
        leaks = [line for line in text.splitlines() if "hush" in line]
        assert leaks == []

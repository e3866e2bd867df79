"""The modules that copy and run the host program, through Ansible itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from action_plugins.host_program_file import pack

ROOT = Path(__file__).parents[3]


def ansible(module, arguments, *options):
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_STDOUT_CALLBACK": "minimal"}
    environment["ANSIBLE_LOAD_CALLBACK_PLUGINS"] = "false"
    command = [sys.executable, "-m", "ansible", "adhoc", "localhost", "-i", "localhost,", "-c", "local"]
    command += [
        "-e",
        f"ansible_python_interpreter={sys.executable}",
        "-m",
        module,
        "-a",
        json.dumps(arguments),
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)
    text = done.stdout
    if text.strip() == "localhost | SKIPPED":
        return {"skipped": True}
    assert "=> {" in text, done.stdout + done.stderr
    return json.JSONDecoder().raw_decode(text[text.index("=> {") + 3 :])[0]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "aerie_host.pyz"
    path.write_bytes(pack(ROOT / "host"))
    return path


def test_the_same_files_give_the_same_bytes_wherever_they_lie(tmp_path, program):
    shutil.copytree(ROOT / "host", tmp_path / "host", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (tmp_path / "host").rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(0o755)
    (tmp_path / "host/aerie_host/__pycache__").mkdir()
    (tmp_path / "host/aerie_host/__pycache__/x.pyc").write_bytes(b"stale")
    assert pack(tmp_path / "host") == program.read_bytes()
    with zipfile.ZipFile(program) as packed:
        assert "__main__.py" in packed.namelist()
        assert not [name for name in packed.namelist() if not name.endswith(".py")]


def test_the_packed_program_runs(program):
    done = subprocess.run([sys.executable, str(program), "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "extract" in done.stdout


@pytest.mark.slow
def test_copying_check_then_nothing_moved_then_changed_then_unchanged(tmp_path):
    arguments = {"source": str(ROOT / "host"), "dest": str(tmp_path / "new/aerie_host.pyz")}
    planned = ansible("host_program_file", arguments, "--check", "--diff")
    assert planned["changed"] is True
    assert "content" not in planned.get("invocation", {}).get("module_args", {})
    assert list(tmp_path.iterdir()) == []
    assert ansible("host_program_file", arguments)["changed"] is True
    assert subprocess.run([sys.executable, arguments["dest"], "--help"], check=False).returncode == 0
    assert ansible("host_program_file", arguments)["changed"] is False
    assert ansible("host_program_file", arguments, "--check")["changed"] is False
    assert "absolute path" in ansible("host_program_file", {**arguments, "source": "host"})["msg"]


def test_a_failing_command_fails_with_its_message(program):
    arguments = {"python": sys.executable, "program": str(program), "command": "extract", "spec": {"model": "/nowhere"}}
    failed = ansible("host_program", arguments)
    assert failed.get("changed") is False
    assert "/nowhere is no model folder" in failed["msg"]


def test_without_environment_a_run_fails_and_a_check_says_what_would_run(program):
    arguments = {"python": "/nowhere/python", "program": str(program), "command": "judge", "spec": {}}
    assert "provision the environment first" in ansible("host_program", arguments)["msg"]
    assert ansible("host_program", arguments, "--check").get("skipped") is True


def test_a_command_that_hangs_is_ended_with_its_log(tmp_path):
    from ansible.module_utils.aerie.jobs.program import command_line, run_program

    script = tmp_path / "program.py"
    script.write_text("import sys, time\nprint('so far', file=sys.stderr, flush=True)\ntime.sleep(600)\n")
    document, log = run_program(command_line(sys.executable, str(script), "x", "-", False), {}, dict(os.environ), 2)
    assert document["failed"]
    assert "did not end within 2 seconds" in document["msg"]
    assert log == "so far"


def test_added_variables_replace_those_of_this_process(monkeypatch):
    from ansible.module_utils.aerie.jobs.program import process_variables

    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    variables = process_variables("/x.pyz", {"VLLM_Y": "1", "TERM": ""})
    assert {**variables, "VLLM_Y": "1", "TERM": "", "PYTHONPATH": "/x.pyz"} == variables
    assert variables["PATH"] == os.environ["PATH"]


def test_a_command_that_dies_without_a_document_says_so(tmp_path):
    from ansible.module_utils.aerie.jobs.program import command_line, run_program

    script = tmp_path / "program.py"
    script.write_text("import sys\nsys.stdin.read()\nprint('no json')\nsys.exit('terrible')\n")
    document, log = run_program(command_line(sys.executable, str(script), "x", "-", False), {}, dict(os.environ), 30)
    assert "ended with code 1 and gave no result" in document["msg"]
    assert log == "terrible"

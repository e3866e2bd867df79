"""The GPU gates over what nvidia-smi said on several machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from ansible.module_utils.aerie.gates import gpu, gpu_users, nvidia
from ansible.module_utils.aerie.shared import processes
from ansible.module_utils.aerie.shared.checks import Checks
from library import host_gates

RECORDED = Path(__file__).parent / "recorded"
ROOT = Path(__file__).resolve().parents[3]
STACK: dict[str, Any] = yaml.safe_load((ROOT / "stacks" / "vllm-0.16-cuda.yml").read_text())


def recorded(name: str) -> nvidia.Report:
    return nvidia.report(*((RECORDED / f"{name}.{what}.csv").read_text() for what in ("gpus", "processes")))


def judged(
    report: nvidia.Report, tensor_parallel: int = 1, weights: int = 0, devices: str = gpu.UNSET
) -> dict[str, dict[str, Any]]:
    checks = Checks()
    gpu.judge(checks, report, STACK, gpu.Plan(tensor_parallel, 0.9, weights, devices))
    return {check["name"]: check for check in checks.as_list()}


def failed(checks: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, check in checks.items() if check["status"] == "fail"}


def test_recorded_h200_is_fit() -> None:
    checks = judged(recorded("h200"), weights=100_000_000_000)
    assert {check["status"] for check in checks.values()} == {"pass"}
    assert checks["driver"]["found"] == "580.159.04"
    assert checks["compute capability"]["found"] == "9.0 (NVIDIA H200)"


@pytest.mark.parametrize(
    ("devices", "numbers"),
    [
        ("unset", list(range(8))), ("", []), ("3", [3]), ("7, 0", [7, 0]), ("1,-1,2", [1]), ("8,1", []), ("-1", []),
        # CUDA shows none where one stands twice, and takes a word for the end.
        ("2,2,3", []), ("0,0", []), ("0,1,x,1", [0, 1]), ("all", []), ("GPU", []), ("GPU-", []),
        # vLLM 0.16 ends with "invalid literal for int()" on anything but numbers.
        ("{uuid}", []), ("{uuid},0", []), ("0,{uuid}", [0]), ("MIG-{uuid}", []),
    ],
)  # fmt: skip
def test_a_job_is_shown_the_gpus_that_cuda_makes_of_the_variable(devices: str, numbers: list[int]) -> None:
    gpus = recorded("rtx_pro_6000_x8").gpus
    text = devices.format(uuid=gpus[5].uuid)
    assert [one.number for one in gpu.visible(gpus, text)] == numbers


def test_only_the_gpus_that_the_job_is_shown_are_judged() -> None:
    report = recorded("rtx_pro_6000_x8")
    full = report.gpus[0]._replace(used=report.gpus[0].total, capability="7.5")
    report = report._replace(gpus=[full, *report.gpus[1:]])
    assert failed(judged(report)) == {"compute capability", "GPU memory in use"}
    assert failed(judged(report, 2, devices="4,5")) == set()
    assert failed(judged(report, 2, devices="4,0")) == {"compute capability", "GPU memory in use"}
    few = judged(report, 4, devices="4,5")
    assert failed(few) == {"number of GPUs"}
    assert few["number of GPUs"]["found"] == "2 of 8, by CUDA_VISIBLE_DEVICES=4,5"
    # One GPU alone is named by any beginning of its UUID, and still vLLM reads no UUID.
    for devices in ("0,0", "GPU", recorded("h200").gpus[0].uuid):
        assert "number of GPUs" in failed(judged(recorded("h200"), devices=devices))
    assert "hidden_states_job_environment" in few["number of GPUs"]["remedy"]


@pytest.mark.parametrize(("plan", "shown"), [({}, "0,0"), ({"devices": "unset"}, "0,0"), ({"devices": "0"}, "")])
def test_the_host_s_own_variable_counts_where_the_inventory_has_none(
    plan: dict[str, str], shown: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\ncase "$1" in --query-gpu*) cat {RECORDED}/h200.gpus.csv;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,0")
    checks = Checks()
    parameters = {
        "stack": STACK,
        "plan": {
            "model": str(tmp_path),
            "tensor_parallel": 1,
            "gpu_memory_utilization": 0.9,
            "devices": "unset",
            **plan,
        },
        "end_leftovers": False,
    }
    host_gates.judge_gpus(SimpleNamespace(params=parameters), checks, True)  # type: ignore[arg-type]
    (number,) = (check for check in checks.as_list() if check["name"] == "number of GPUs")
    assert number["status"] == ("fail" if shown else "pass")
    assert shown in number["found"]


def test_recorded_h200_too_small_for_the_weights() -> None:
    assert failed(judged(recorded("h200"), weights=600_000_000_000)) == {"GPU memory"}


def test_recorded_h200_with_a_foreign_process_at_30_percent() -> None:
    report = recorded("h200_foreign")
    checks = judged(report)
    assert failed(checks) == {"GPU memory in use"}
    assert "30% on the fullest: GPU 0 pid 427 python3" in checks["GPU memory in use"]["found"]
    assert "owner" in checks["GPU memory in use"]["remedy"]


@pytest.mark.parametrize(
    ("main", "status", "found", "remedy"),
    [
        ("alive", "warn", "(ours, uid", "run on"),
        ("dead", "fail", "(ours, left over, uid", "playbooks/stop.yml -e hidden_states_job_name=kimi"),
        ("no record", "fail", "(ours, left over, uid", "hidden_states_job_name=kimi"),
    ],
)
def test_recorded_memory_held_by_our_job_or_by_what_it_left(
    tmp_path: Path, main: str, status: str, found: str, remedy: str
) -> None:
    """The job's main process is this one, or one that has ended; the worker is real and carries the marker."""
    report, folder = recorded("h200_foreign"), tmp_path / "jobs" / "kimi"
    folder.mkdir(parents=True)
    known = processes.identity(os.getpid())
    assert known is not None
    if main != "no record":
        record = {"process": known if main == "alive" else {**known, "start_time": 1}}
        (folder / "job.json").write_text(json.dumps(record))
    environment = {**os.environ, processes.MARKER: str(folder)}
    program = [sys.executable, "-c", "print(1, flush=True); input()"]
    with subprocess.Popen(program, stdin=-1, stdout=-1, env=environment) as ours:
        assert ours.stdout is not None
        ours.stdout.readline()
        try:
            used = [report.processes[0]._replace(pid=ours.pid)]
            check = judged(report._replace(processes=used))["GPU memory in use"]
            assert ours.poll() is None, "a gate ends nothing"
        finally:
            ours.kill()
    assert check["status"] == status
    assert found in check["found"]
    assert remedy in check["remedy"]


@pytest.mark.parametrize("main", ["alive", "dead", "foreign"])
@pytest.mark.parametrize("check_mode", [True, False])
def test_only_what_a_killed_job_of_ours_left_is_ended_when_allowed(tmp_path: Path, main: str, check_mode: bool) -> None:
    folder = tmp_path / "jobs" / "kimi"
    folder.mkdir(parents=True)
    known = processes.identity(os.getpid())
    assert known is not None
    (folder / "job.json").write_text(json.dumps({"process": known if main == "alive" else {**known, "start_time": 1}}))
    environment = {**os.environ, **({} if main == "foreign" else {processes.MARKER: str(folder)})}
    with subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True); input()"], stdin=-1, stdout=-1, env=environment
    ) as one:
        assert one.stdout is not None
        one.stdout.readline()
        try:
            checks = Checks()
            ended = gpu_users.end_leftovers(checks, [nvidia.Process("GPU-0", one.pid, "python3", 1)], check_mode)
            assert ended == (main == "dead")
            assert [check["name"] for check in checks.as_list()] == ["left-over workers"] * ended
            gone = one.poll() is not None
        finally:
            one.kill()
    assert gone == (main == "dead" and not check_mode)


@pytest.mark.parametrize("name", ["/opt/run, fast/python3", "a, 12", "odd\nname", "x, [y]", "[Not Found]", ""])
def test_a_foreign_process_of_any_name_is_listed(name: str) -> None:
    gpus, processes = ((RECORDED / f"h200_foreign.{what}.csv").read_text() for what in ("gpus", "processes"))
    report = nvidia.report(gpus, processes.replace("python3", name))
    (one,) = report.processes
    assert (one.pid, one.name) == (427, name.split("\n")[0])
    assert one.used == (0 if "\n" in name else 43434 * 1024 * 1024)
    check = judged(report)["GPU memory in use"]
    assert "GPU 0 pid 427 " in check["found"]
    assert "does not see" not in check["found"]


def test_recorded_memory_in_use_by_nobody_visible_is_refused() -> None:
    check = judged(recorded("h200_foreign")._replace(processes=[]))["GPU memory in use"]
    assert check["status"] == "fail"
    assert "does not see" in check["found"]


def test_recorded_rtx_pro_6000_blackwell_x8_is_fit_and_lazy() -> None:
    checks = judged(recorded("rtx_pro_6000_x8"), tensor_parallel=8, weights=600_000_000_000)
    assert failed(checks) == set()
    assert checks["MIG"]["status"] == "pass"
    assert checks["persistence mode"]["status"] == "warn"


def test_recorded_gpu_without_code_for_it_is_refused_br22() -> None:
    older = {**STACK, "cuda": {**STACK["cuda"], "architectures": ["8.0", "9.0"]}}
    checks = Checks()
    gpu.judge(checks, recorded("rtx_pro_6000_x8"), older, gpu.Plan(8, 0.9, 0))
    (check,) = [one.as_data() for one in checks.failed]
    assert check["name"] == "compute capability"
    assert "12.0" in check["found"]
    assert "sm_120" in check["remedy"]


def test_recorded_old_driver_is_refused_and_mig_is_told() -> None:
    checks = judged(recorded("old_driver"), tensor_parallel=2)
    assert failed(checks) == {"driver"}
    assert checks["driver"]["wanted"].startswith("570.26 or newer, for CUDA 12.8")
    assert checks["MIG"]["status"] == "warn"


# NVIDIA, CUDA Toolkit Release Notes, table "CUDA Toolkit and Corresponding Driver Versions", Linux.
FIRST_DRIVER = {"12.8": "570.26", "12.9": "575.51.03", "13.0": "580.65.06"}


@pytest.mark.parametrize("path", sorted((ROOT / "stacks").glob("*.yml")), ids=lambda path: path.stem)
def test_stacks_want_the_first_driver_of_their_cuda_and_blackwell_wants_12_8(path: Path) -> None:
    cuda = yaml.safe_load(path.read_text()).get("cuda")
    if cuda:
        assert cuda["driver"] == FIRST_DRIVER[cuda["version"]]
        assert "12.0" not in cuda["architectures"] or float(cuda["version"]) >= 12.8


@pytest.mark.parametrize(
    ("machine", "fits"), [("h200", True), ("rtx_pro_6000_x8", False), ("old_driver", False), ("no_gpus", False)]
)
def test_recorded_driver_against_a_stack_for_cuda_13(machine: str, fits: bool) -> None:
    checks = Checks()
    newer = {**STACK, "cuda": {**STACK["cuda"], "version": "13.0", "driver": FIRST_DRIVER["13.0"]}}
    gpu.judge(checks, recorded(machine), newer, gpu.Plan(1, 0.9, 0))
    assert ("driver" not in {check.name for check in checks.failed}) is fits


def test_a_driver_so_old_that_it_knows_no_compute_capability(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The words of such a driver, by a program in the place of nvidia-smi."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'Field \"compute_cap\" is not a valid field to query.'\nexit 2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    check = judged(nvidia.gather())["driver"]
    assert check["status"] == "fail"
    assert "compute_cap" in check["found"]


@pytest.mark.parametrize("machine", ["h200_foreign", "old_driver", "no_gpus", "rtx_pro_6000_x8"])
def test_recorded_whatever_is_not_right_has_value_need_and_remedy(machine: str) -> None:
    for check in judged(recorded(machine), tensor_parallel=16, weights=10**13).values():
        if check["status"] in ("fail", "warn"):
            assert check["found"], check
            assert check["wanted"], check
            assert check["remedy"], check


def test_recorded_too_few_gpus_for_tensor_parallel() -> None:
    assert failed(judged(recorded("old_driver"), tensor_parallel=8)) == {"driver", "number of GPUs"}


@pytest.mark.parametrize("line", ["0, GPU-a, [Unknown Error]", "Unable to determine the device handle for GPU 0"])
def test_a_gpu_that_is_broken_is_not_passed_over(line: str) -> None:
    gpus = (RECORDED / "h200.gpus.csv").read_text().replace("0, ", "1, ", 1)
    checks = judged(nvidia.report(f"{line}\n{gpus}", ""))
    assert failed(checks) == {"number of GPUs"}
    assert line in checks["number of GPUs"]["found"]


@pytest.mark.parametrize("word", ["[N/A]", "[Insufficient Permissions]"])
def test_memory_that_the_driver_does_not_tell_is_no_free_memory(word: str) -> None:
    parts = (RECORDED / "h200.gpus.csv").read_text().split(", ")
    checks = judged(nvidia.report(", ".join([*parts[:6], word, *parts[7:]]), ""))
    assert checks["GPU memory in use"]["status"] == "warn"
    checks = judged(nvidia.report(", ".join([*parts[:5], word, word, *parts[7:]]), ""), weights=1)
    assert failed(checks) == {"GPU memory"}
    assert checks["GPU memory"]["found"] == "not told by the driver"


def test_recorded_no_gpus() -> None:
    checks = judged(recorded("no_gpus"), tensor_parallel=8)
    assert failed(checks) == {"driver", "compute capability", "number of GPUs", "GPU memory in use"}
    assert "No devices were found" in checks["driver"]["found"]


def test_no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    checks = judged(nvidia.gather())
    assert "driver" in failed(checks)
    assert "not installed" in checks["driver"]["found"]


def test_nvidia_smi_that_fails_tells_its_own_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not communicate'\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "could not communicate" in judged(nvidia.gather())["driver"]["found"]


@pytest.mark.parametrize(
    ("capability", "runs"),
    [
        ("8.0", True), ("8.9", True), ("9.0", True), ("10.3", True), ("12.1", True), ("7.5", False), ("11.0", False),
    ],
)  # fmt: skip
def test_code_runs_on_its_own_major_version_from_its_minor_on(capability: str, runs: bool) -> None:
    report = recorded("h200")
    report = report._replace(gpus=[report.gpus[0]._replace(capability=capability)])
    assert ("compute capability" not in failed(judged(report))) is runs


@pytest.mark.parametrize(("nvcc", "status"), [("", "warn"), ("12.4", "warn"), ("12.8", "pass"), ("13.0", "pass")])
def test_missing_or_old_nvcc_is_told_before_the_model_starts_br23(nvcc: str, status: str) -> None:
    checks = Checks()
    path = "/usr/local/cuda/bin/nvcc" if nvcc else ""
    gpu.judge_compilers(checks, (path, nvcc), "/usr/bin/gcc", True, STACK["cuda"], recorded("h200").gpus)
    assert [check["status"] for check in checks.as_list()] == [status, "pass"]


def test_cpu_stack_names_every_gpu_gate_as_not_applicable() -> None:
    checks = Checks()
    gpu.not_applicable(checks)
    assert {c["status"] for c in checks.as_list()} == {"n/a"}
    assert set(judged(recorded("h200"))) <= {c["name"] for c in checks.as_list()}

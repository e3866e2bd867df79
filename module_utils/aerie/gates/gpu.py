"""Gates of GPU hosts: driver, architecture, number, memory, and who uses it."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible.module_utils.aerie.distributions.versions import release
from ansible.module_utils.aerie.gates.machine import size
from ansible.module_utils.aerie.shared.processes import end, identity, is_alive, marker_of

if TYPE_CHECKING:
    from ansible.module_utils.aerie.gates.nvidia import Gpu, Process, Report
    from ansible.module_utils.aerie.shared.checks import Checks

NAMES = ("driver", "compute capability", "number of GPUs", "GPU memory", "GPU memory in use", "MIG", "persistence mode",
         "CUDA compiler", "C compiler")  # fmt: skip
# What the engine needs beside the weights: CUDA context, activations, a small KV cache.
BESIDE_WEIGHTS = 4_000_000_000
ALLOW = "host_gates_end_leftovers: true"
# CUDA_VISIBLE_DEVICES is not set: the job is shown every GPU. CUDA itself takes "all" for none.
UNSET = "unset"
# Seconds that a left-over worker has to let go of its GPU before it is killed.
GRACE = 10.0


class Plan(NamedTuple):
    """What the extraction will ask of the GPUs."""

    tensor_parallel: int
    utilization: float
    weights: int
    # CUDA_VISIBLE_DEVICES of its process.
    devices: str = UNSET


def not_applicable(checks: Checks) -> None:
    """The gates of a stack without GPUs: named, so that a reader sees that they were not forgotten."""
    for name in NAMES:
        checks.add(name, "n/a", "CPU stack", "does not apply")


def judge(checks: Checks, told: Report, stack: dict[str, Any], plan: Plan) -> None:
    """All gates that nvidia-smi answers."""
    cuda = stack["cuda"]
    driver = told.gpus[0].driver if told.gpus else ""
    checks.require(
        "driver", bool(driver) and release(driver) >= release(cuda["driver"]), driver or told.problem,
        f"{cuda['driver']} or newer, for CUDA {cuda['version']}", "install a newer NVIDIA driver and restart the host",
    )  # fmt: skip
    seen = visible(told.gpus, plan.devices)
    _capability(checks, seen, cuda)
    _number(checks, told, len(seen), plan)
    used = seen[: plan.tensor_parallel]
    _memory(checks, used, plan)
    _in_use(checks, used, told.processes, plan)
    _modes(checks, told.gpus)


def visible(gpus: list[Gpu], devices: str) -> list[Gpu]:
    """The GPUs that a job is shown and can use, in the order of the variable.

    As CUDA reads it: up to a word that is no number of a GPU, and none at all where one stands twice. CUDA would take a
    UUID too, which vLLM 0.16 does not.
    """
    if devices == UNSET:
        return gpus
    numbered = {str(gpu.number): gpu for gpu in gpus}
    names = list(itertools.takewhile(numbered.__contains__, map(str.strip, devices.split(","))))
    return [numbered[name] for name in names] if len(set(names)) == len(names) else []


def _number(checks: Checks, told: Report, seen: int, plan: Plan) -> None:
    found, remedy = str(seen), "lower hidden_states_tensor_parallel_size, or use a host with more GPUs"
    if plan.devices != UNSET:
        found = f"{seen} of {len(told.gpus)}, by CUDA_VISIBLE_DEVICES={plan.devices}"
        remedy = f"correct it in hidden_states_job_environment (numbers, each once; vLLM reads no UUID), or {remedy}"
    broken = bool(told.gpus and told.problem)
    if broken:
        found, remedy = f"{found}, and {told.problem}", "have the GPU that answers no numbers reset or taken out"
    wanted = plan.tensor_parallel
    checks.require(
        "number of GPUs", seen >= wanted and not broken, found, f"{wanted} for tensor parallel {wanted}", remedy
    )


def runs_on(capability: str, architectures: list[str]) -> bool:
    """A build for X.Y runs on X.Z with Z >= Y, and on no other major version."""
    has = release(capability)
    built = [release(one) for one in architectures]
    return any(has[:1] == one[:1] and has >= one for one in built)


def _capability(checks: Checks, gpus: list[Gpu], cuda: dict[str, Any]) -> None:
    architectures = [str(one) for one in cuda["architectures"]]
    found = sorted({f"{gpu.capability} ({gpu.name})" for gpu in gpus})
    wanted = f"code for one of {', '.join(architectures)} must run on it"
    good = bool(gpus) and all(runs_on(gpu.capability, architectures) for gpu in gpus)
    checks.require(
        "compute capability", good, ", ".join(found) or "no GPU", wanted,
        "use a stack whose wheels are built for this GPU (sm_120 wants CUDA 12.8 or newer)",
    )  # fmt: skip


def _memory(checks: Checks, gpus: list[Gpu], plan: Plan) -> None:
    if not plan.weights or not gpus:
        checks.add("GPU memory", "n/a", "no checkpoint to measure" if gpus else "no GPU", "room for the model's share")
        return
    needed = plan.weights // plan.tensor_parallel + BESIDE_WEIGHTS
    least = min(gpu.total for gpu in gpus)
    checks.require(
        "GPU memory", least * plan.utilization >= needed,
        f"{size(least)} x {plan.utilization}" if least else "not told by the driver",
        f"{size(needed)}: {size(plan.weights)} of weights over {plan.tensor_parallel} GPUs, and {size(BESIDE_WEIGHTS)}",
        "raise hidden_states_tensor_parallel_size, or use a smaller quantisation of the model",
    )  # fmt: skip


def _in_use(checks: Checks, gpus: list[Gpu], processes: list[Process], plan: Plan) -> None:
    """VLLM refuses to start where less than its share of the total is free. Never ends anybody's process."""
    crowded = [gpu for gpu in gpus if gpu.used is not None and gpu.used > gpu.total * (1 - plan.utilization)]
    if not gpus:
        checks.add(
            "GPU memory in use",
            "fail",
            "no GPU",
            f"{1 - plan.utilization:.0%} at most",
            "see the gate number of GPUs",
        )
        return
    silent = [gpu.number for gpu in gpus if gpu.used is None]
    if silent and not crowded:
        checks.add(
            "GPU memory in use", "warn", f"not told by the driver for GPUs {silent}",
            f"{1 - plan.utilization:.0%} at most", "look by hand who uses them: vLLM does not start without its share",
        )  # fmt: skip
        return
    most = max(gpu.used / gpu.total if gpu.total else 1.0 for gpu in gpus if gpu.used is not None)
    who = [
        f"GPU {gpu.number} pid {one.pid} {one.name} ({owner(one.pid)}) {size(one.used)}"
        for gpu in crowded
        for one in processes
        if one.gpu == gpu.uuid
    ]
    pids = [one.pid for gpu in crowded for one in processes if one.gpu == gpu.uuid]
    ours = bool(who) and all(is_ours(pid) for pid in pids)
    left = sorted({leftover_of(pid) for pid in pids} - {""})
    found = f"{most:.0%} on the fullest" + (": " + ", ".join(who) if who else "")
    if crowded and not who:
        found += ", by processes that this user or container does not see"
    # A running job is found again by the next run; what a killed one left stands in the way until somebody lets it go.
    status = "pass" if not crowded else "warn" if ours and not left else "fail"
    if not ours:
        remedy = "wait for these processes or have their owner end them, or lower hidden_states_gpu_memory_utilization"
    elif left:
        names = " and ".join(f"-e hidden_states_job_name={Path(folder).name}" for folder in left)
        remedy = f"workers of ours that a killed job left: playbooks/stop.yml {names} ends them, {ALLOW} too"
    else:
        remedy = "these are jobs of ours: they run on, or playbooks/stop.yml ends them"
    checks.add(
        "GPU memory in use", status, found, f"{1 - plan.utilization:.0%} at most", remedy if crowded else ""
    )  # fmt: skip


def end_leftovers(checks: Checks, processes: list[Process], check_mode: bool) -> int:
    """End the workers on GPUs that killed jobs of ours left, and nothing else; how many there were."""
    known = [identity(pid) for pid in sorted({one.pid for one in processes}) if leftover_of(pid)]
    workers = [one for one in known if one]
    if not workers:
        return 0
    stay = [] if check_mode else end(workers, GRACE)
    pids = ", ".join(str(one["pid"]) for one in workers)
    checks.require(
        "left-over workers", not stay, f"{pids} {'would be' if check_mode else 'not' if stay else 'were'} ended",
        "none left", "end them as the user who owns them" if stay else "",
    )  # fmt: skip
    return len(workers)


def is_ours(pid: int) -> bool:
    """Whether a process carries the marker of one of our jobs."""
    return marker_of(pid) is not None


def leftover_of(pid: int) -> str:
    """The folder of the job of ours whose main process is gone while this worker still runs; empty for any other."""
    folder = marker_of(pid) or ""
    try:
        known = json.loads((Path(folder) / "job.json").read_text(encoding="utf-8"))["process"]
    except (OSError, ValueError, KeyError, TypeError):
        return folder  # a marker without a record: the folder was removed
    return "" if is_alive(known) else folder


def owner(pid: int) -> str:
    """User number and command of a process, as far as this user may see."""
    proc = Path("/proc") / str(pid)
    try:
        words = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").split()
        who = f"uid {proc.stat().st_uid}, {' '.join(words)[:60]}"
    except OSError:
        return "not visible from here"
    whose = "foreign" if not is_ours(pid) else "ours, left over" if leftover_of(pid) else "ours"
    return f"{whose}, {who}"


def _modes(checks: Checks, gpus: list[Gpu]) -> None:
    split = [gpu.number for gpu in gpus if gpu.mig == "Enabled"]
    checks.add(
        "MIG", "warn" if split else "pass", f"enabled on GPUs {split}" if split else "off", "off",
        "turn MIG off on these GPUs: tensor parallel wants whole ones" if split else "",
    )  # fmt: skip
    lazy = [gpu.number for gpu in gpus if gpu.persistence != "Enabled"]
    checks.add(
        "persistence mode", "warn" if lazy else "pass", f"off on GPUs {lazy}" if lazy else "on", "on",
        "nvidia-smi -pm 1 (or nvidia-persistenced): each start of the driver costs seconds otherwise" if lazy else "",
    )  # fmt: skip


def nvcc_version() -> str:
    """Release of the CUDA compiler that FlashInfer and others would find, empty when there is none."""
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    program = shutil.which("nvcc") or next(
        (f"{h}/bin/nvcc" for h in homes if h and os.access(f"{h}/bin/nvcc", os.X_OK)), ""
    )
    if not program:
        return ""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"release (\d+\.\d+)", done.stdout)
    return found.group(1) if found else ""


def judge_compilers(checks: Checks, nvcc: str, compiler: str, headers: bool, cuda: dict[str, Any]) -> None:
    """Kernels that are compiled at first use need compilers; the wheels do not bring them."""
    good = bool(nvcc) and release(nvcc) >= release(cuda["version"])
    checks.add(
        "CUDA compiler", "pass" if good else "warn", f"nvcc {nvcc}" if nvcc else "no nvcc",
        f"nvcc {cuda['version']} or newer, where FlashInfer compiles kernels at first use",
        "" if good else f"install the CUDA toolkit {cuda['version']} (package cuda-nvcc), or use an attention backend "
        "that is compiled already (VLLM_ATTENTION_BACKEND in hidden_states_job_environment)",
    )  # fmt: skip
    good = bool(compiler) and headers
    found = f"{compiler or 'no C compiler'}, {'with' if headers else 'without'} Python.h"
    checks.add(
        "C compiler", "pass" if good else "warn", found, "a C compiler and Python.h, which Triton uses at first launch",
        "" if good else "install gcc and the development package of this Python",
    )  # fmt: skip

"""Gates of GPU hosts: driver, architecture, number, memory and its users, modes, compilers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible.module_utils.aerie.distributions.versions import release
from ansible.module_utils.aerie.gates.gpu_users import is_ours, leftover_of, owner
from ansible.module_utils.aerie.gates.machine import size
from ansible.module_utils.aerie.shared import cuda as cuda_rules

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


class Plan(NamedTuple):
    """What the extraction will ask of the GPUs.

    Attributes:
        tensor_parallel: number of GPUs over which the model is spread.
        utilization: the share of each GPU's memory that vLLM takes, 0 to 1.
        weights: bytes of the checkpoint; 0 when it is not there.
        devices: CUDA_VISIBLE_DEVICES of the job's process.

    """

    tensor_parallel: int
    utilization: float
    weights: int
    devices: str = UNSET


def not_applicable(checks: Checks) -> None:
    """The gates of a stack without GPUs: listed, so that a reader sees that they were not forgotten."""
    for name in NAMES:
        checks.add(name, "n/a", "CPU stack", "does not apply")


def judge(checks: Checks, report: Report, stack: dict[str, Any], plan: Plan) -> None:
    """All gates that nvidia-smi answers."""
    cuda = stack["cuda"]
    driver = report.gpus[0].driver if report.gpus else ""
    checks.require(
        "driver", bool(driver) and release(driver) >= release(cuda["driver"]), driver or report.problem,
        f"{cuda['driver']} or newer, for CUDA {cuda['version']}", "install a newer NVIDIA driver and restart the host",
    )  # fmt: skip
    seen = visible(report.gpus, plan.devices)
    architectures = [str(architecture) for architecture in cuda["architectures"]]
    models = [(gpu.capability, gpu.name) for gpu in seen]
    checks.append(cuda_rules.architecture_check("compute capability", models, architectures, "the stack"))
    _number(checks, report, len(seen), plan)
    used = seen[: plan.tensor_parallel]
    _memory(checks, used, plan)
    _in_use(checks, used, report.processes, plan)
    _modes(checks, report.gpus)


def visible(gpus: list[Gpu], devices: str) -> list[Gpu]:
    """The GPUs that a job is shown and can use, in the order of the variable.

    CUDA reads the variable up to the first word that is not the number of a GPU, and shows no GPU where a number is
    repeated. CUDA would take a UUID too, which vLLM 0.16 does not.
    """
    if devices == UNSET:
        return gpus
    numbered = {str(gpu.number): gpu for gpu in gpus}
    names = list(itertools.takewhile(numbered.__contains__, map(str.strip, devices.split(","))))
    return [numbered[name] for name in names] if len(set(names)) == len(names) else []


def _number(checks: Checks, report: Report, seen: int, plan: Plan) -> None:
    found, remedy = str(seen), "lower hidden_states_tensor_parallel_size, or use a host with more GPUs"
    if plan.devices != UNSET:
        found = f"{seen} of {len(report.gpus)}, by CUDA_VISIBLE_DEVICES={plan.devices}"
        remedy = f"correct it in hidden_states_job_environment (numbers, each once; vLLM reads no UUID), or {remedy}"
    broken = bool(report.gpus and report.problem)
    if broken:
        found, remedy = f"{found}, and {report.problem}", "reset or remove the GPU that does not answer with numbers"
    needed = plan.tensor_parallel
    wanted = f"{needed} for tensor parallel {needed}"
    checks.require("number of GPUs", seen >= needed and not broken, found, wanted, remedy)


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
    """VLLM does not start where less than its share of the total is free. This only looks; it ends no process."""
    name, wanted = "GPU memory in use", f"{1 - plan.utilization:.0%} at most"
    if not gpus:
        checks.add(name, "fail", "no GPU", wanted, "see the gate number of GPUs")
        return
    crowded = [gpu for gpu in gpus if gpu.used is not None and gpu.used > gpu.total * (1 - plan.utilization)]
    silent = [gpu.number for gpu in gpus if gpu.used is None]
    if silent and not crowded:
        remedy = "look by hand who uses them: vLLM does not start without its share"
        checks.add(name, "warn", f"not told by the driver for GPUs {silent}", wanted, remedy)
        return
    most = max(gpu.used / gpu.total if gpu.total else 1.0 for gpu in gpus if gpu.used is not None)
    found = f"{most:.0%} on the fullest"
    if not crowded:
        checks.add(name, "pass", found, wanted)
        return
    users = [(gpu, process) for gpu in crowded for process in processes if process.gpu == gpu.uuid]
    who = [
        f"GPU {gpu.number} pid {process.pid} {process.name} ({owner(process.pid)}) {size(process.used)}"
        for gpu, process in users
    ]
    found += f": {', '.join(who)}" if who else ", by processes that this user or container does not see"
    checks.add(name, *_verdict(found, wanted, [process.pid for _, process in users]))


def _verdict(found: str, wanted: str, pids: list[int]) -> tuple[str, str, str, str]:
    """Status, found, wanted and remedy for GPUs that these processes fill."""
    left = sorted({leftover_of(pid) for pid in pids} - {""})
    if not pids or not all(is_ours(pid) for pid in pids):
        remedy = "wait for these processes or have their owner end them, or lower hidden_states_gpu_memory_utilization"
        return "fail", found, wanted, remedy
    if left:
        names = " and ".join(f"-e hidden_states_job_name={Path(folder).name}" for folder in left)
        remedy = f"workers of ours that a killed job left: playbooks/stop.yml {names} ends them, {ALLOW} too"
        return "fail", found, wanted, remedy
    # The next run finds a running job again, so this stops nothing.
    return "warn", found, wanted, "these are jobs of ours: they run on, or playbooks/stop.yml ends them"


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


def judge_compilers(
    checks: Checks, nvcc: tuple[str, str], compiler: str, headers: bool, cuda: dict[str, Any], gpus: list[Gpu]
) -> None:
    """Compilers for kernels that are compiled at first use; the wheels bring none.

    `nvcc` is path and release of the CUDA compiler, `compiler` the path of a C compiler, empty where there is none.
    """
    path, found_release = nvcc
    capabilities = sorted({gpu.capability for gpu in gpus})
    checks.append(cuda_rules.compiler_check("CUDA compiler", path, found_release, str(cuda["version"]), capabilities))
    good = bool(compiler) and headers
    found = f"{compiler or 'no C compiler'}, {'with' if headers else 'without'} Python.h"
    checks.add(
        "C compiler", "pass" if good else "warn", found, "a C compiler and Python.h, which Triton uses at first launch",
        "" if good else "install gcc and the development package of this Python",
    )  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""Run all gates of a host and list them together."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_gates
short_description: Check whether a host is fit for a stack and for an extraction
description:
  - Measures the host and compares it with what the stack and the planned extraction need. All gates run. Those that
    fail are listed together, each with the measured value, the needed value and a remedy.
  - Changes nothing, unless O(end_leftovers=true). Finds Python by running each candidate, and returns the first that
    fits.
options:
  stack: {description: The parsed stack file, type: dict, required: true}
  python: {description: Path of the Python to use; empty tries each candidate, type: str, default: ''}
  environment: {description: Where the ML environment is or will be, type: path, required: true}
  plan:
    description: What will be extracted.
    type: dict
    required: true
    suboptions:
      model: {description: Folder of the checkpoint, type: str, required: true}
      data: {description: File of the conversations, type: str, required: true}
      output: {description: Folder of the hidden states, type: str, required: true}
      layers: {description: Number of layers that are extracted, type: int, required: true}
      max_length: {description: Tokens of the longest sample, type: int, required: true}
      samples: {description: Number of samples at most; 0 for all of the data, type: int, default: 0}
      shard: {description: 'The part of the data, as C(2/8); empty for all', type: str, default: ''}
      hidden_size: {description: Hidden size where no checkpoint is there to tell it, type: int, default: 0}
      model_bytes: {description: Size of a model that is fetched later, type: int, default: 0}
      model_must_exist: {description: Whether a missing model fails, type: bool, default: false}
      bytes: {description: Size of the hidden states in place of an estimate, type: int, default: 0}
      adopted: {description: Whether the environment is adopted and not built, type: bool, default: false}
      tensor_parallel: {description: GPUs over which vLLM spreads the model, type: int, required: true}
      gpu_memory_utilization: {description: 'Share of GPU memory for vLLM, 0 to 1', type: float, required: true}
      devices: {description: CUDA_VISIBLE_DEVICES of the job; C(unset) where it is not set, type: str, default: unset}
  controller_time: {description: Seconds since the epoch on the controller, type: float}
  end_leftovers:
    description: End workers that hold a GPU and whose job, one of ours, was killed. Never any other process.
    type: bool
    default: false
attributes:
  check_mode: {support: full, description: Says which workers would be ended}
  diff_mode: {support: none, description: Changes no file}
author: [Aerie contributors]
"""

EXAMPLES = r"""
- name: Check the host
  host_gates:
    stack: "{{ aerie_stack }}"
    environment: /root/ml-env
    plan:
      model: /models/kimi
      data: /data/train.jsonl
      output: /data/states
      layers: 4
      max_length: 512
      tensor_parallel: 8
      gpu_memory_utilization: 0.9
"""

RETURN = r"""
python: {description: Path of the Python that fits, type: str, returned: success}
aerie: {description: Section C(gates) of the report, type: dict, returned: always}
"""

import os
import shutil
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible.module_utils.aerie.distributions import pythons
from ansible.module_utils.aerie.gates import gpu, gpu_users, machine, nvidia, space
from ansible.module_utils.aerie.module_io.result import finish
from ansible.module_utils.aerie.shared import cuda
from ansible.module_utils.aerie.shared.checks import Checks

PLAN = {
    **{name: {"type": "str", "required": True} for name in ("model", "data", "output")},
    **{name: {"type": "int", "required": True} for name in ("layers", "max_length", "tensor_parallel")},
    **{name: {"type": "int", "default": 0} for name in ("samples", "hidden_size", "model_bytes", "bytes")},
    **{name: {"type": "bool", "default": False} for name in ("adopted", "model_must_exist")},
    "shard": {"type": "str", "default": ""},
    "gpu_memory_utilization": {"type": "float", "required": True},
    "devices": {"type": "str", "default": gpu.UNSET},
}


def judge_space(checks: Checks, environment: Path, stack: dict[str, Any], plan: dict[str, Any]) -> None:
    """Disk for all that will be written, and a model to read."""
    states = space.states_need(plan)
    needs = [space.environment_need(environment, stack, plan["adopted"]), space.model_need(plan), states]
    space.judge(checks, [need for need in needs if need])
    if states is None:
        text = "hidden size or number of samples not known before the model and the data are there"
        checks.add("disk for hidden states", "n/a", text, "an estimate")
    if plan["model_must_exist"]:
        config = Path(plan["model"]) / "config.json"
        checks.require(
            "model", config.is_file(), "there" if config.is_file() else f"no {config}", "a checkpoint with config.json",
            "put the checkpoint there, or correct hidden_states_model_path",
        )  # fmt: skip


def judge_gpus(module: AnsibleModule, checks: Checks, headers: bool) -> tuple[list[dict[str, Any]], bool]:
    """The GPU gates, or that they do not apply; the GPUs for the report, and whether workers were ended."""
    stack, plan = module.params["stack"], module.params["plan"]
    if stack["device"] != "cuda":
        gpu.not_applicable(checks)
        return [], False
    report, ended = nvidia.gather(), 0
    if module.params["end_leftovers"]:
        ended = gpu_users.end_leftovers(checks, report.processes, module.check_mode)
        report = nvidia.gather() if ended else report
    weights = space.checkpoint_bytes(Path(plan["model"]))
    devices = plan["devices"]
    if devices == gpu.UNSET:
        # The job gets what this user's environment has.
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", gpu.UNSET)
    share = plan["gpu_memory_utilization"]
    gpu.judge(checks, report, stack, gpu.Plan(plan["tensor_parallel"], share, weights, devices))
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang") or ""
    nvcc = cuda.find_nvcc()
    release = cuda.nvcc_release(nvcc) if nvcc else ""
    seen = gpu.visible(report.gpus, devices)
    gpu.judge_compilers(checks, (nvcc, release), compiler, headers, stack["cuda"], seen)
    return nvidia.as_data(report), bool(ended)


def main() -> None:
    """Entry point."""
    arrived = time.time()
    module = AnsibleModule(
        argument_spec={
            "stack": {"type": "dict", "required": True},
            "python": {"type": "str", "default": ""},
            "environment": {"type": "path", "required": True},
            "plan": {"type": "dict", "required": True, "options": PLAN},
            "controller_time": {"type": "float"},
            "end_leftovers": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    stack, plan, checks = module.params["stack"], module.params["plan"], Checks()
    facts = machine.gather()
    python = pythons.facts(module.params["python"], str(stack["python"]))
    machine.judge_python(checks, python, stack)
    machine.judge_platform(checks, facts, stack)
    machine.judge_memory(checks, facts, stack)
    judge_space(checks, Path(module.params["environment"]), stack, plan)
    machine.judge_clock(
        checks, arrived - module.params["controller_time"] if module.params["controller_time"] else None
    )
    gpus, ended = judge_gpus(module, checks, python["headers"])
    data = {"python": python["path"], "python_version": python["version"], "machine": facts, "gpus": gpus}
    data["summary"] = f"Python {python['version'] or 'not found'}, {len(gpus)} GPUs, stack {stack['name']}"
    finish(module, "gates", checks, ended, data, python=python["path"])


if __name__ == "__main__":
    main()

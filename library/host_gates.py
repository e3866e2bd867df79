# SPDX-License-Identifier: Apache-2.0
"""Run all gates of a host and list them together."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_gates
short_description: Is this host fit for a stack and for what will be extracted on it
description:
  - Measures the host and compares with what the stack and the planned extraction need. All gates run; those that fail
    are listed together, each with measured value, needed value and remedy.
  - Reads only, unless O(end_leftovers). Finds Python by running each candidate, and returns the first that fits.
options:
  stack: {description: The parsed stack file, type: dict, required: true}
  python: {description: Path of the Python to use; empty tries each candidate, type: str, default: ''}
  environment: {description: Where the ML environment is or will be, type: path, required: true}
  plan:
    description:
      - What will be extracted. C(model), C(data), C(output) are paths; C(layers), C(max_length), C(samples) numbers;
        C(shard) i/n; C(hidden_size) where no checkpoint tells it; C(model_bytes) of a model that is fetched later;
        C(bytes) overrides the estimate of what the hidden states take; C(tensor_parallel) and
        C(gpu_memory_utilization) as vLLM gets them; C(devices) as CUDA_VISIBLE_DEVICES has them; C(model_must_exist)
        refuses a missing model; C(adopted) builds no environment.
    type: dict
    required: true
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
    plan: {model: /models/kimi, data: /data/train.jsonl, output: /data/states, layers: 4, max_length: 512}
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
from ansible.module_utils.aerie.gates import gpu, machine, nvidia, space
from ansible.module_utils.aerie.module_io.result import finish
from ansible.module_utils.aerie.shared.checks import Checks


def judge_space(checks: Checks, environment: Path, stack: dict[str, Any], plan: dict[str, Any]) -> None:
    """Disk for all that will be written, and a model to read."""
    states = space.states_need(plan)
    needs = [space.environment_need(environment, stack, bool(plan.get("adopted"))), space.model_need(plan), states]
    space.judge(checks, [need for need in needs if need])
    if states is None:
        text = "hidden size or number of samples not known before the model and the data are there"
        checks.add("disk for hidden states", "n/a", text, "an estimate")
    if plan.get("model_must_exist"):
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
    told, ended = nvidia.gather(), 0
    if module.params["end_leftovers"]:
        ended = gpu.end_leftovers(checks, told.processes, module.check_mode)
        told = nvidia.gather() if ended else told
    weights = space.checkpoint_bytes(Path(plan["model"]))
    share, devices = float(plan.get("gpu_memory_utilization") or 0.9), str(plan.get("devices", gpu.UNSET))
    if devices == gpu.UNSET:
        # The job gets what this user's environment has.
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", gpu.UNSET)
    asked = gpu.Plan(int(plan.get("tensor_parallel") or 1), share, weights, devices)
    gpu.judge(checks, told, stack, asked)
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang") or ""
    gpu.judge_compilers(checks, gpu.nvcc_version(), compiler, headers, stack["cuda"])
    return nvidia.as_data(told), bool(ended)


def main() -> None:
    """Entry point."""
    arrived = time.time()
    module = AnsibleModule(
        argument_spec={
            "stack": {"type": "dict", "required": True},
            "python": {"type": "str", "default": ""},
            "environment": {"type": "path", "required": True},
            "plan": {"type": "dict", "required": True},
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

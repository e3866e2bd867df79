# SPDX-License-Identifier: Apache-2.0
"""Start, follow and stop one long command of the host program."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_job
short_description: A long command of the host program that outlives its caller
description:
  - Starts the command in a session of its own, so that a dropped connection or a dead controller does not end it.
  - Knows that the job runs by a hold on a file, which the kernel releases when the job ends, and by pid, start time and
    boot; never by a pid alone. Starting a job that runs finds the running one.
  - Workers that a killed job left are recognised by a marker in their variables. They are ended before a new start.
options:
  state:
    description:
      - C(started) plans first and starts only when there is work; C(polled) waits up to O(wait) seconds and reports;
        C(stopped) ends the job and its workers; C(absent) also removes the job's folder.
    type: str
    choices: [started, polled, stopped, absent]
    default: started
  job_dir: {description: Folder of the job (record, log, result), type: path, required: true}
  python: {description: Interpreter of the ML environment, type: path}
  program: {description: The host program's zip file, type: path}
  command: {description: Name of the command, type: str, default: extract}
  spec: {description: Inputs of the command, type: dict, default: {}}
  environment: {description: Process variables to add, type: dict, default: {}}
  wait: {description: Seconds to wait while polling or stopping, type: int, default: 10}
  plan_timeout: {description: Seconds that planning may take, type: int, default: 3600}
attributes:
  check_mode: {support: full, description: Says whether a job would be started or stopped}
  diff_mode: {support: none, description: Nothing that a diff could show}
author: [Aerie contributors]
"""

EXAMPLES = r"""
- name: Start the extraction
  host_job:
    job_dir: /root/aerie/jobs/run-1
    python: /root/ml-env/bin/python
    program: /root/aerie/aerie_host.pyz
    spec: {model: /models/kimi, output: /root/aerie/hidden_states/run-1}
"""

RETURN = r"""
running: {description: The job runs, type: bool, returned: success}
finished: {description: The job has ended or there was nothing to do, type: bool, returned: always}
progress: {description: 'samples, total, tokens_per_s, seconds_left', type: dict, returned: success}
aerie: {description: The section of the report, type: raw, returned: when finished}
stderr: {description: The end of the log, type: str, returned: failure}
log_path: {description: The whole log, type: str, returned: always}
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible.module_utils.aerie.jobs.host_job import HostJob
from ansible.module_utils.aerie.jobs.program import missing
from ansible.module_utils.aerie.module_io import secrets
from ansible.module_utils.aerie.module_io.variables import as_text
from ansible.module_utils.aerie.shared.refusal import Refusal


def start(module: AnsibleModule, job: HostJob) -> dict[str, Any]:
    """Start the job when there is work, or find the running one. Raises `Refusal`."""
    params = module.params
    absent = missing(params["python"], params["program"])
    if absent and module.check_mode:
        text = f"the job would start: {absent.found}. {absent.remedy}"
        return {"changed": True, "running": False, "finished": False, "msg": text}
    if absent:
        raise absent
    return job.start(
        params["python"],
        params["program"],
        params["command"],
        params["spec"],
        as_text(params["environment"]),
        params["plan_timeout"],
        module.check_mode,
    )


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["started", "polled", "stopped", "absent"], "default": "started"},
            "job_dir": {"type": "path", "required": True},
            "python": {"type": "path"},
            "program": {"type": "path"},
            "command": {"type": "str", "default": "extract"},
            "spec": {"type": "dict", "default": {}},
            "environment": {"type": "dict", "default": {}, "no_log": True},
            "wait": {"type": "int", "default": 10},
            "plan_timeout": {"type": "int", "default": 3600},
        },
        required_if=[("state", "started", ["python", "program", "spec"])],
        supports_check_mode=True,
    )
    params = module.params
    secrets.hide(module, params["environment"], os.environ)
    job = HostJob(params["job_dir"])
    try:
        if params["state"] == "started":
            result = start(module, job)
        elif params["state"] == "polled":
            result = job.poll(params["wait"])
        else:
            result = job.stop(params["wait"], module.check_mode, remove=params["state"] == "absent")
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), finished=True, log_path=str(job.log))
    if result.pop("failed", False):
        module.fail_json(log_path=str(job.log), **result)
    module.exit_json(log_path=str(job.log), **result)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Run one command of the host program."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_program
short_description: Run one command of the host program in the ML environment
description:
  - Runs C(python program command) with O(spec) on standard input, and returns what the command reports.
  - When the command fails, the result has the end of its log.
  - In check mode the command runs with C(--check) and changes nothing. Commands that only read do the same in both
    modes. In check mode a missing environment is not a failure, because an earlier task would have made it.
options:
  python: {description: Interpreter of the ML environment, type: path, required: true}
  program: {description: The host program's zip file, type: path, required: true}
  command: {description: Name of the command, type: str, required: true}
  spec: {description: Inputs of the command, type: dict, required: true}
  environment: {description: Process variables to add, type: dict, default: {}}
  timeout: {description: Seconds after which the command is ended, type: int, default: 3600}
attributes:
  check_mode: {support: full, description: The command runs and changes nothing}
  diff_mode: {support: none, description: The command says in words what it would change}
author: [Aerie contributors]
"""

EXAMPLES = r"""
- name: Judge the hidden states
  host_program:
    python: /root/ml-env/bin/python
    program: /root/aerie/aerie_host.pyz
    command: judge
    spec: {output: /root/aerie/hidden_states/run-1}
"""

RETURN = r"""
aerie: {description: The sections of the report that the command filled, type: raw, returned: always}
msg: {description: One line on what was found or done, type: str, returned: always}
stderr: {description: The end of the command's log, type: str, returned: failure}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible.module_utils.aerie.jobs.program import command_line, missing, process_variables, run_program
from ansible.module_utils.aerie.module_io import secrets
from ansible.module_utils.aerie.module_io.variables import as_text


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "program": {"type": "path", "required": True},
            "command": {"type": "str", "required": True},
            "spec": {"type": "dict", "required": True},
            "environment": {"type": "dict", "default": {}, "no_log": True},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    params = module.params
    secrets.hide(module, params["environment"], os.environ)
    command = params["command"]
    absent = missing(params["python"], params["program"])
    if absent:
        if module.check_mode:
            module.exit_json(changed=False, skipped=True, msg=f"{command} would run: {absent.found}. {absent.remedy}")
        module.fail_json(msg=f"{command}: {absent}")
    line = command_line(params["python"], params["program"], command, "-", module.check_mode)
    variables = process_variables(params["program"], as_text(params["environment"]))
    document, log = run_program(line, params["spec"], variables, params["timeout"])
    if document.pop("failed", False):
        module.fail_json(msg="{}: {}".format(command, document.pop("msg", "no message")), stderr=log, **document)
    module.exit_json(**document)


if __name__ == "__main__":
    main()

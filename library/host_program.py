# SPDX-License-Identifier: Apache-2.0
"""Run one command of the host program."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_program
short_description: Run one command of the host program in the ML environment
description:
  - Runs C(python program command), gives it O(spec) on standard input, and hands on what it reports.
  - A failed command shows the end of its log in the message.
  - In check mode the command runs with C(--check) and changes nothing; commands that only read do the same in both
    modes. An environment that is not there yet is no failure then, for an earlier task would have made it.
options:
  python: {description: Interpreter of the ML environment, type: path, required: true}
  program: {description: The host program's zip file, type: path, required: true}
  command: {description: Name of the command, type: str, required: true}
  spec: {description: Inputs of the command, type: dict, required: true}
  environment: {description: Environment variables to add, type: dict, default: {}}
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
    given = module.params
    secrets.hide(module, given["environment"], os.environ)
    absent = missing(given["python"], given["program"])
    if absent:
        if module.check_mode:
            module.exit_json(changed=False, skipped=True, msg="{} would run: {}".format(given["command"], absent))
        module.fail_json(msg="{}: {}".format(given["command"], absent))
    line = command_line(given["python"], given["program"], given["command"], "-", module.check_mode)
    variables = process_variables(given["program"], as_text(given["environment"]))
    document, log = run_program(line, given["spec"], variables, given["timeout"])
    if document.pop("failed", False):
        message = "{}: {}".format(given["command"], document.pop("msg", "no message"))
        module.fail_json(msg=message, stderr=log, **document)
    module.exit_json(**document)


if __name__ == "__main__":
    main()

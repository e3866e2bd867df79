# SPDX-License-Identifier: Apache-2.0
"""Look for what the patches of a series promise."""

from __future__ import annotations

DOCUMENTATION = r"""
module: patch_probes
short_description: Find every patch by its probes
description:
  - Looks for the grep probes in the installed files, or imports the names of the import probes in a clean interpreter
    of the environment. Changes nothing and behaves the same in check mode.
options:
  environment: {description: The virtual environment, type: path, required: true}
  kind:
    description: C(grep) reads files; C(imports) starts one interpreter with C(-I).
    type: str
    choices: [grep, imports]
    required: true
  probes:
    description: What M(package_patches) returned as C(probes).
    type: dict
    required: true
  report_only:
    description: Do not fail on a failing probe, but list it in C(failures), for a later task that acts on it and fails.
    type: bool
    default: false
  timeout:
    description: Seconds that all imports together may take.
    type: int
    default: 600
attributes:
  check_mode: {support: full, description: Changes nothing}
  diff_mode: {support: none, description: Changes nothing}
author: [Aerie contributors]
"""

EXAMPLES = r"""
- name: Find every patch in the installed files
  patch_probes:
    environment: /root/ml-env
    kind: grep
    probes: "{{ __package_patches_result.probes }}"
"""

RETURN = r"""
lines: {description: 'One line for each grep probe: pattern, file, line numbers', type: list, returned: always}
failures: {description: 'The failing checks, one line each', type: list, returned: always}
stderr: {description: All that the interpreter wrote while importing, type: str, returned: always}
aerie: {description: The section C(patch) of the report, type: dict, returned: always}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible.module_utils.aerie.distributions.installed import environment_root
from ansible.module_utils.aerie.module_io.result import finish
from ansible.module_utils.aerie.patching.probes import check_greps, check_imports
from ansible.module_utils.aerie.shared.checks import Checks, failure_message
from ansible.module_utils.aerie.shared.refusal import Refusal


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "environment": {"type": "path", "required": True},
            "kind": {"type": "str", "choices": ["grep", "imports"], "required": True},
            "probes": {"type": "dict", "required": True},
            "report_only": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    checks = Checks()
    root = environment_root(Path(parameters["environment"]).absolute())
    lines: list[str] = []
    errors = ""
    try:
        if parameters["kind"] == "grep":
            lines = check_greps(root, parameters["probes"]["grep"], checks)
        else:
            errors = check_imports(root, parameters["probes"]["imports"], checks, parameters["timeout"])
    except Refusal as refusal:
        checks.append(refusal.as_check())
    failures = [f"{check.name}: found {check.found}, wanted {check.wanted}" for check in checks.failed]
    shown = {"lines": lines, "stderr": errors, "failures": failures}
    aerie = {"section": "patch", "checks": checks.as_list(), "data": {}}
    if parameters["report_only"] and len(checks):
        module.exit_json(changed=False, aerie=aerie, **shown)
    if checks.failed and errors:
        message = f"{failure_message(checks)}\nstderr of the interpreter:\n{errors}"
        module.fail_json(msg=message, aerie=aerie, **shown)
    finish(module, "patch", checks, False, {}, **shown)


if __name__ == "__main__":
    main()

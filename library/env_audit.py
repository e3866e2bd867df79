# SPDX-License-Identifier: Apache-2.0
"""Audit an ML environment without importing anything from it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: env_audit
short_description: Audit an ML environment without importing anything from it
description:
  - Compares installed distributions with the lock, files with RECORD, patched files with the series, and what the
    patched files call in vLLM with the installed vLLM's source.
  - Reads only. An action plugin of the same name reads stack, lock and series on the controller.
  - In check mode an environment that is not there yet is no failure, for an earlier task would have made it.
options:
  environment: {description: The environment to audit, type: path, required: true}
  stack: {description: The parsed stack file, type: dict, required: true}
  lock: {description: 'Lock on the controller, in one file or more', type: list, elements: path}
  series_dirs: {description: Series directories on the controller, type: list, elements: path}
  allowed: {description: Distributions that may be there without being locked, type: list, elements: str, default: []}
  pending:
    description:
      - In check mode, that a run would change this environment first. What stands there says nothing about what that
        run would verify, and is not audited then.
    type: bool
    default: false
  pins: {description: Set by the action plugin, type: list, elements: list}
  series: {description: Set by the action plugin, type: list, elements: dict}
attributes:
  check_mode: {support: full, description: The module reads only}
  diff_mode: {support: none, description: The module changes nothing}
author: [Aerie contributors]
"""

EXAMPLES = r"""
- name: Audit the environment
  env_audit:
    environment: /root/ml-env
    stack: "{{ aerie_stack }}"
    lock: ["{{ aerie_checkout }}/stacks/{{ aerie_stack.lock }}"]
    series_dirs: ["{{ aerie_checkout }}/files/patches/speculators-0.3.0"]
"""

RETURN = r"""
aerie: {description: Section C(audit) of the report, type: dict, returned: always}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible.module_utils.aerie.audit.run import Demand, run
from ansible.module_utils.aerie.distributions.installed import environment_root, site_packages_of
from ansible.module_utils.aerie.distributions.lock import Pin
from ansible.module_utils.aerie.module_io.result import finish
from ansible.module_utils.aerie.patching.series import SeriesRefusal, from_raw


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "environment": {"type": "path", "required": True},
            "stack": {"type": "dict", "required": True},
            "lock": {"type": "list", "elements": "path"},
            "series_dirs": {"type": "list", "elements": "path"},
            "allowed": {"type": "list", "elements": "str", "default": []},
            "pending": {"type": "bool", "default": False},
            "pins": {"type": "list", "elements": "list"},
            "series": {"type": "list", "elements": "dict"},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    if parameters["pins"] is None or parameters["series"] is None:
        module.fail_json(msg="env_audit: its action plugin has not read the lock and the series; see ansible.cfg")
    environment = Path(parameters["environment"])
    there = site_packages_of(environment_root(environment))
    if module.check_mode and (parameters["pending"] or not there):
        text = f"no environment at {environment} yet: it cannot be verified before it is provisioned"
        if there:
            text = f"a run would change {environment} first, and verify it after that"
        check = {"name": "environment", "status": "n/a", "found": text, "wanted": "an environment", "remedy": ""}
        module.exit_json(changed=False, msg=text, aerie={"section": "audit", "checks": [check], "data": {}})
    stack = parameters["stack"]
    try:
        series = [from_raw(raw) for raw in parameters["series"]]
    except SeriesRefusal as refusal:
        module.fail_json(msg=str(refusal))
    demand = Demand(
        environment=environment,
        stack=str(stack.get("name", "")),
        pins=[Pin(*[str(part) for part in pin]) for pin in parameters["pins"]],
        series=series,
        faults=[str(fault) for fault in stack.get("faults", [])],
        vllm_distribution=str(stack.get("vllm_distribution", "vllm")),
        allowed=parameters["allowed"],
    )
    found = run(demand)
    finish(module, "audit", found.checks, False, found.data)


if __name__ == "__main__":
    main()

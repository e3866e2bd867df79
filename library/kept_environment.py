# SPDX-License-Identifier: Apache-2.0
"""Go back to an environment that was kept."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kept_environment
short_description: Go back to a Python environment that was kept beside the current one
description:
  - M(uv_environment) keeps earlier environments in C(<path>.d). This module verifies one of them against its own lock,
    points O(path) at it in one step, and verifies it again.
  - The environment that was in use stays. Going back to it by its name goes forward again.
options:
  path: {description: The link to the environment, type: path, required: true}
  name: {description: Name of a folder in C(<path>.d); empty means the one before the current, type: str, default: ''}
  vllm_distribution: {description: Name of the distribution that brings vLLM, type: str, default: vllm}
attributes:
  check_mode: {support: full, description: Says which environment it would be}
  diff_mode: {support: full, description: 'Distributions before and after, one a line'}
author: [Aerie contributors]
"""

EXAMPLES = r"""
- name: Go back
  kept_environment:
    path: /root/ml-env
"""

RETURN = r"""
environment: {description: The environment that O(path) leads to, type: str, returned: success}
aerie: {description: Section C(provision) of the report, type: dict, returned: always}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible.module_utils.aerie.environment import comparison, rollback
from ansible.module_utils.aerie.environment.comparison import installed_versions, versions_of
from ansible.module_utils.aerie.environment.layout import Layout
from ansible.module_utils.aerie.module_io.result import finish
from ansible.module_utils.aerie.shared.checks import Check, Checks
from ansible.module_utils.aerie.shared.refusal import Refusal

SECTION = "provision"


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "name": {"type": "str", "default": ""},
            "vllm_distribution": {"type": "str", "default": "vllm"},
        },
        supports_check_mode=True,
    )
    path, distribution = Path(module.params["path"]), module.params["vllm_distribution"]
    layout = Layout(path)
    current = layout.current()
    before = versions_of(installed_versions(current, distribution)) if current else {}
    wanted = "a kept environment that is as it was installed"
    try:
        chosen, changed = rollback.go_back(path, module.params["name"], distribution, module.check_mode)
    except Refusal as refusal:
        refuse(module, layout, refusal.as_check())
        return
    except OSError as error:
        remedy = "choose another one, or provision anew"
        refuse(module, layout, Check(rollback.CHECK, "fail", str(error), wanted, remedy))
        return
    checks, after = Checks(), versions_of(installed_versions(chosen, distribution))
    verb = ("would lead" if module.check_mode else "leads") if changed else "led already"
    checks.add(rollback.CHECK, "pass", f"{path} {verb} to {chosen.name}, as its lock says", wanted)
    kept = rollback.listing(layout, distribution)
    summary = f"{chosen.name}, {len(after)} distributions; kept: {', '.join(entry['name'] for entry in kept)}"
    data = {"path": str(path), "kept": kept, "summary": summary, "moves": comparison.moves(before, after)}
    finish(
        module, SECTION, checks, changed, data,
        environment=str(chosen),
        diff={
            "before_header": f"{path} (current)", "after_header": f"{path} ({chosen.name})",
            "before": comparison.listing(before), "after": comparison.listing(after),
        },
    )  # fmt: skip


def refuse(module: AnsibleModule, layout: Layout, problem: Check) -> None:
    """End with a failed check, and the environments that could be chosen."""
    checks = Checks()
    checks.append(problem)
    kept = rollback.listing(layout, module.params["vllm_distribution"])
    finish(module, SECTION, checks, False, {"path": str(layout.path), "kept": kept})


if __name__ == "__main__":
    main()

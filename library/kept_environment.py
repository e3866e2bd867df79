# SPDX-License-Identifier: Apache-2.0
"""Go back to an environment that was kept."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kept_environment
short_description: Go back to a Python environment that was kept beside the current one
description:
  - M(uv_environment) keeps earlier environments in C(<path>.d). This points O(path) at one of them, in one step, after
    it was found to be what its own lock says, and looks again afterwards.
  - The environment that was left stays where it is, and is newer; naming it goes forward again.
options:
  path: {description: Where the environment is seen, type: path, required: true}
  name: {description: Name of a folder in C(<path>.d); empty means the one before the current, type: str, default: ''}
  vllm_distribution: {description: Name of the distribution that brings vLLM, type: str, default: vllm}
attributes:
  check_mode: {support: full, description: Says which one it would be}
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
aerie: {description: Section C(environment) of the report, type: dict, returned: always}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible.module_utils.aerie.distributions.lock import LockError
from ansible.module_utils.aerie.environment import build, comparison, rollback, uv
from ansible.module_utils.aerie.environment.layout import Layout
from ansible.module_utils.aerie.module_io.result import finish
from ansible.module_utils.aerie.shared.checks import Checks

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
    path, distribution, checks = Path(module.params["path"]), module.params["vllm_distribution"], Checks()
    layout = Layout(path)
    current = layout.current()
    before = build.versions(comparison.installed(current, distribution)) if current else {}
    wanted, remedy = "a kept environment that is as it was installed", ""
    try:
        chosen, changed = rollback.go_back(path, module.params["name"], distribution, module.check_mode)
    except rollback.KeptError as error:
        found, wanted, remedy = error.found, error.wanted, error.remedy
    except build.BusyError as error:
        found, remedy = str(error), "wait for it to end, or end it: playbooks/stop.yml"
    except BlockingIOError:
        found, remedy = f"another run builds in {path}.d", "wait for it to end"
    except (uv.ToolError, LockError, OSError) as error:
        found, remedy = str(error), "choose another one, or provision anew"
    else:
        after = build.versions(comparison.installed(chosen, distribution))
        verb = ("would lead" if module.check_mode else "leads") if changed else "led already"
        checks.add("kept environment", "pass", f"{path} {verb} to {chosen.name}, as its lock says", wanted)
        all_kept = rollback.listing(layout, distribution)
        names = ", ".join(one["name"] for one in all_kept)
        data = {"path": str(path), "kept": all_kept}
        summary = f"{chosen.name}, {len(after)} distributions; kept: {names}"
        finish(
            module, SECTION, checks, changed, {**data, "summary": summary, "moves": comparison.moves(before, after)},
            environment=str(chosen),
            diff={
                "before_header": f"{path} (current)", "after_header": f"{path} ({chosen.name})",
                "before": comparison.listing(before), "after": comparison.listing(after),
            },
        )  # fmt: skip
        return
    checks.add("kept environment", "fail", found, wanted, remedy)
    finish(module, SECTION, checks, False, {"path": str(path), "kept": rollback.listing(layout, distribution)})


if __name__ == "__main__":
    main()

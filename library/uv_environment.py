# SPDX-License-Identifier: Apache-2.0
"""Provide the locked Python environment on the target."""

from __future__ import annotations

DOCUMENTATION = r"""
module: uv_environment
short_description: Provide a Python environment that is exactly what a lock says
description:
  - Compares what is installed with the lock, by version, by the RECORD of each distribution, and by the digests in the
    lock.
  - On any difference uv builds a new environment beside the old one, from wheels alone and with hashes required. The
    new environment is verified against the lock, and the link at O(path) is then pointed at it. A build that fails or
    is interrupted leaves the environment as it was.
  - An action plugin of the same name reads the lock on the controller and brings the controller's uv to the target.
options:
  path:
    description: The link to the environment; the environments themselves are in C(<path>.d).
    type: path
    required: true
  lock: {description: Path of the lock on the controller, type: path, required: true}
  stack: {description: Name of the stack for the record, type: str, required: true}
  python: {description: Python of the target to build from; empty tries each candidate, type: str, default: ''}
  python_versions: {description: 'Versions that the lock is for, as C(>=3.12,<3.13)', type: str, required: true}
  home:
    description: Folder for C(bin/uv), and for uv's cache where the usual one is on another filesystem than O(path).
    type: path
    required: true
  uv: {description: A uv of the target to use instead of the controller's, type: str, default: ''}
  source:
    description:
      - C(lock) builds; C(bundle) builds from O(bundle) without a network; C(existing) installs nothing and verifies
        what is at O(path).
    type: str
    choices: [lock, bundle, existing]
    default: lock
  bundle: {description: Folder of the target that C(playbooks/bundle.yml) made, type: path, default: ''}
  replace: {description: Move aside something at O(path) that is not ours, type: bool, default: false}
  keep: {description: How many earlier environments to keep, type: int, default: 2}
  may_move: {description: Whether a renewed lock may move core distributions (torch), type: bool, default: false}
  environment: {description: 'Variables for uv: mirror, proxy, certificates, cache', type: dict, default: {}}
  vllm_distribution: {description: Name of the distribution that brings vLLM, type: str, default: vllm}
  allowed: {description: Distributions that may be installed without a pin, type: list, elements: str, default: []}
  wheel:
    description: Where vLLM comes from when it is not in the lock (docs/stacks.md); its digest is in O(wheel_record).
    type: dict
    default: {}
  wheel_record: {description: 'Lock of the one wheel, on the controller', type: path}
  trust_first_download:
    description: Record the digest of the wheel at its first download, where none is known.
    type: bool
    default: false
  lock_text: {description: Set by the action plugin, type: str}
  uv_sha256: {description: Set by the action plugin, type: str}
  uv_upload: {description: Set by the action plugin, type: str}
attributes:
  check_mode: {support: full, description: Says what would be installed}
  diff_mode: {support: full, description: 'Distributions before and after, one a line'}
author: [Aerie contributors]
"""

EXAMPLES = r"""
- name: Provide the environment
  uv_environment:
    path: /root/ml-env
    lock: /srv/aerie/stacks/vllm-0.16-cuda.lock
    stack: vllm-0.16-cuda
    python_versions: ">=3.12,<3.13"
    home: /root/aerie
"""

RETURN = r"""
environment: {description: The environment that O(path) leads to, type: str, returned: success}
python: {description: Its interpreter, type: str, returned: success}
moves: {description: 'Distributions added, removed and changed', type: dict, returned: success}
aerie: {description: Section C(provision) of the report, type: dict, returned: always}
"""

import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible.module_utils.aerie.environment import adopted, comparison, uv, vllm_wheel
from ansible.module_utils.aerie.environment.bundle import BundleRefusal
from ansible.module_utils.aerie.environment.converge import converge
from ansible.module_utils.aerie.environment.demand import Demand, Outcome
from ansible.module_utils.aerie.environment.file_digest import file_digest
from ansible.module_utils.aerie.environment.layout import Layout
from ansible.module_utils.aerie.module_io import secrets
from ansible.module_utils.aerie.module_io.result import finish
from ansible.module_utils.aerie.module_io.variables import as_text
from ansible.module_utils.aerie.shared.checks import Check, Checks
from ansible.module_utils.aerie.shared.refusal import Refusal

SECTION = "provision"


def refuse(module: AnsibleModule, *problems: Check) -> None:
    """End with these failed checks."""
    checks = Checks()
    for problem in problems:
        checks.append(problem)
    finish(module, SECTION, checks, False, {})


def uv_in_place(module: AnsibleModule) -> str:
    """The uv to use. Ends the module with `needs_uv` where the controller's uv must be uploaded first."""
    params = module.params
    if params["uv"]:
        return str(params["uv"])
    target = Path(params["home"]) / "bin" / "uv"
    if params["source"] == "existing":
        return ""  # nothing is installed
    if params["source"] == "bundle":
        return str(target)  # installed from the bundle when an environment is built
    if file_digest(target) != params["uv_sha256"] and not module.check_mode:
        if not params["uv_upload"]:
            module.exit_json(changed=False, needs_uv=True)
        uv.install(Path(params["uv_upload"]), target)
    return str(target)


def bundle_of(module: AnsibleModule) -> Path | None:
    """The folder to install from, where the source is a bundle. Raises `Refusal`."""
    if module.params["source"] != "bundle":
        return None
    if not module.params["bundle"]:
        raise Refusal("bundle", "no ml_env_bundle", "a folder of the host", "make one with playbooks/bundle.yml")
    return Path(module.params["bundle"])


def adopt(module: AnsibleModule, demand: Demand) -> None:
    """Verify what is at the path, and install nothing."""
    checks, data = adopted.judge(demand)
    found, python = data.get("environment", ""), str(demand.path / "bin" / "python")
    finish(module, SECTION, checks, False, data, environment=found, python=python)


def require_place(demand: Demand) -> None:
    """Raise `Refusal` for something at the path that is not ours."""
    stranger = Layout(demand.path).stranger()
    if stranger and not demand.replace:
        raise Refusal(
            "place", f"{stranger} at {demand.path}, not made by this role", "nothing, or a link of ours",
            "ml_env_source: existing adopts and verifies it; ml_env_replace: true moves it aside",
        )  # fmt: skip


def demand_of(module: AnsibleModule) -> Demand:
    """The demand from the module's parameters. Raises `Refusal`."""
    params = module.params
    return Demand(
        path=Path(params["path"]),
        lock=params["lock_text"],
        stack=params["stack"],
        python=params["python"],
        python_versions=params["python_versions"],
        home=Path(params["home"]),
        uv=uv_in_place(module),
        vllm_distribution=params["vllm_distribution"],
        keep=params["keep"],
        may_move=params["may_move"],
        replace=params["replace"],
        variables=as_text(params["environment"]),
        allowed=params["allowed"],
        bundle=bundle_of(module),
        uv_sha256="" if params["uv"] else params["uv_sha256"] or "",
        wheel=vllm_wheel.source_of(params["wheel"]),
    )


def report(outcome: Outcome, demand: Demand, check_mode: bool) -> dict[str, Any]:
    """Data of the section."""
    moved = comparison.moves(outcome.before, outcome.after)
    count = sum(len(group) for group in moved.values())
    if not outcome.changed:
        verb = "as locked"
    elif check_mode:
        verb = f"would be built, {count} would move"
    else:
        verb = f"built in {outcome.seconds:.0f} s, {count} distributions moved"
    return {
        "path": str(demand.path),
        "environment": str(outcome.environment or ""),
        "stack": demand.stack,
        "python": outcome.python,
        "distributions": len(outcome.after),
        "why": [difference._asdict() for difference in outcome.why[:20]],
        "moves": moved,
        "notes": outcome.notes,
        "seconds": outcome.seconds,
        "summary": f"{demand.stack}, Python {outcome.python}, {len(outcome.after)} distributions {verb}",
    }


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "lock": {"type": "path", "required": True},
            "stack": {"type": "str", "required": True},
            "python": {"type": "str", "default": ""},
            "python_versions": {"type": "str", "required": True},
            "home": {"type": "path", "required": True},
            "uv": {"type": "str", "default": ""},
            "source": {"type": "str", "choices": ["lock", "bundle", "existing"], "default": "lock"},
            "bundle": {"type": "path", "default": ""},
            "replace": {"type": "bool", "default": False},
            "keep": {"type": "int", "default": 2},
            "may_move": {"type": "bool", "default": False},
            "environment": {"type": "dict", "default": {}, "no_log": True},
            "vllm_distribution": {"type": "str", "default": "vllm"},
            "allowed": {"type": "list", "elements": "str", "default": []},
            "wheel": {"type": "dict", "default": {}, "no_log": True},
            "wheel_record": {"type": "path"},
            "trust_first_download": {"type": "bool", "default": False},
            "lock_text": {"type": "str"},
            "uv_sha256": {"type": "str"},
            "uv_upload": {"type": "str"},
        },
        supports_check_mode=True,
    )
    params = module.params
    secrets.hide(module, params["environment"], os.environ, *secrets.addresses_of(params["wheel"]))
    if not params["lock_text"]:
        module.fail_json(msg="uv_environment: its action plugin has not read the lock; see ansible.cfg")
    try:
        demand = demand_of(module)
        if params["source"] == "existing":
            adopt(module, demand)
        require_place(demand)
        outcome = converge(demand, module.check_mode)
    except BundleRefusal as refusal:
        refuse(module, *refusal.problems)
        return
    except Refusal as refusal:
        refuse(module, refusal.as_check())
        return
    except OSError as error:
        remedy = "free disk space, or correct the permissions"
        refuse(module, Check("build", "fail", str(error), "a place that can be written to", remedy))
        return
    present(module, demand, outcome)


def present(module: AnsibleModule, demand: Demand, outcome: Outcome) -> None:
    """End with what was found and done."""
    checks, verb = Checks(), "would be " if module.check_mode and outcome.changed else ""
    count = len(outcome.after)
    checks.add("distributions", "pass", f"{count} {verb}as locked", f"{count}")
    if outcome.changed:
        first = outcome.why[0]
        text = f"{len(outcome.why)} differences, the first: {first.name}: {first.found}, wanted {first.wanted}"
        checks.add("environment before", "pass", text, "any state")
    finish(
        module, SECTION, checks, outcome.changed, report(outcome, demand, module.check_mode),
        environment=str(outcome.environment or ""), python=str(demand.path / "bin" / "python"),
        moves=comparison.moves(outcome.before, outcome.after),
        diff={
            "before_header": f"{demand.path} (installed)", "after_header": f"{demand.path} (locked)",
            "before": comparison.listing(outcome.before), "after": comparison.listing(outcome.after),
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()

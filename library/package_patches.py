# SPDX-License-Identifier: Apache-2.0
"""Keep a declared series of edits on installed Python distributions."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_patches
short_description: Keep a series of patches on installed Python distributions
description:
  - Compares each file that the series touch with three digests, the pristine one of the wheel's C(RECORD), the one that
    the series makes of it, and those that earlier runs wrote; and converges. Markers and versions play no part.
  - All files of all series change together or none does. New files are staged and then renamed into place, so that
    hard and symbolic links into uv's cache are replaced and never written through.
  - A hunk applies at its exact line with all context equal. A hunk that would fit elsewhere is a conflict.
  - The modules that a series adds are entered in C(RECORD), so that uninstalling removes them. The pristine digests of
    patched files stay there, because they say what the wheel delivered.
options:
  environment:
    description: The virtual environment (a link to it, or its site-packages directory, is fine too).
    type: path
    required: true
  series_dirs:
    description:
      - Absolute paths on the controller of the directories with C(series.yml), the patches and the modules.
      - May be empty for O(state=absent), which then restores every distribution that was patched.
    type: list
    elements: path
    required: true
  state:
    description:
      - C(present) applies the series; C(absent) restores the pristine files byte for byte, and C(RECORD).
      - C(audited) changes nothing and fails unless everything is applied; it behaves the same in check mode.
    type: str
    choices: [present, absent, audited]
    default: present
  on_drift:
    description:
      - What to do with a file that is neither pristine nor ours. C(refuse) fails and shows the difference; C(restore)
        overwrites it with what the state asks for.
    type: str
    choices: [refuse, restore]
    default: refuse
  lock_timeout:
    description: Seconds to wait for another run on the same environment.
    type: int
    default: 10
  series:
    description: The content of O(series_dirs). The action plugin fills it; playbooks never give it.
    type: list
    elements: dict
attributes:
  check_mode: {support: full, description: Exact for the whole series}
  diff_mode: {support: full, description: Shows every file of every series}
author: [Aerie contributors]
"""

EXAMPLES = r"""
- name: Apply the series
  package_patches:
    environment: /root/ml-env
    series_dirs: ["{{ playbook_dir }}/../files/patches/speculators-0.3.0"]

- name: Overwrite an edit by hand
  package_patches:
    environment: /root/ml-env
    series_dirs: ["{{ playbook_dir }}/../files/patches/speculators-0.3.0"]
    on_drift: restore

- name: Restore every pristine file
  package_patches:
    environment: /root/ml-env
    series_dirs: []
    state: absent
"""

RETURN = r"""
patches:
  description:
    - State of each patch, C(applied), C(would apply), C(not applied), C(obsolete), C(drifted), C(conflicts) or
      C(missing target).
  type: list
  returned: always
  sample: [{id: 0001-scheduler-config, series: speculators-0.3.0, state: applied}]
probes:
  description: The grep and import probes of the series, for M(patch_probes).
  type: dict
  returned: always
aerie:
  description: The section C(patch) of the report, with the digests of every file.
  type: dict
  returned: always
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible.module_utils.aerie.module_io.result import finish
from ansible.module_utils.aerie.patching.engine import run
from ansible.module_utils.aerie.patching.probes import collect
from ansible.module_utils.aerie.patching.request import Request
from ansible.module_utils.aerie.patching.series import SeriesRefusal, from_raw
from ansible.module_utils.aerie.shared.checks import failure_message


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "environment": {"type": "path", "required": True},
            "series_dirs": {"type": "list", "elements": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "absent", "audited"], "default": "present"},
            "on_drift": {"type": "str", "choices": ["refuse", "restore"], "default": "refuse"},
            "lock_timeout": {"type": "int", "default": 10},
            "series": {"type": "list", "elements": "dict"},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    if parameters["series"] is None:
        module.fail_json(msg="package_patches reads its series on the controller: action_plugins is not on the path")
    try:
        series = [from_raw(raw) for raw in parameters["series"]]
    except SeriesRefusal as refusal:
        module.fail_json(msg=str(refusal))
    result = run(
        Request(
            environment=Path(parameters["environment"]).absolute(),
            series=series,
            state=parameters["state"],
            restore=parameters["on_drift"] == "restore",
            check_mode=module.check_mode,
            hold_wait_s=parameters["lock_timeout"],
        )
    )
    extra = {"patches": result.data["patches"], "probes": collect(series)}
    if module._diff:  # noqa: SLF001  (Ansible's documented way to ask)
        extra["diff"] = result.diffs
    if result.drift:
        aerie = {"section": "patch", "checks": result.checks.as_list(), "data": result.data}
        module.fail_json(msg=f"{failure_message(result.checks)}\n{result.drift}", changed=False, aerie=aerie, **extra)
    finish(module, "patch", result.checks, result.changed, result.data, **extra)


if __name__ == "__main__":
    main()

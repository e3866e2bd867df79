# SPDX-License-Identifier: Apache-2.0
"""Download vLLM's wheel to the target and return its digest."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_wheel
short_description: Download the vLLM wheel of a commit and return its digest
description:
  - Looks a commit up in an index that has a folder for each commit, and downloads the one wheel that fits. Checks that
    every file in it has its digest in RECORD, that the wheel is of that commit, and that its operators need the stack's
    CUDA. Obeys the variables that uv obeys - proxy, certificates, timeout, offline.
  - The action plugin of M(uv_environment) calls it where no digest is recorded yet.
options:
  source: {description: 'Channel, index, commit and variant (docs/stacks.md)', type: dict, required: true}
  home: {description: 'Folder of the target; the wheel goes into C(wheels) there', type: path, required: true}
  environment: {description: 'Variables: proxy, certificates, timeout', type: dict, default: {}}
attributes:
  check_mode: {support: none, description: The digest is not known before the download}
  diff_mode: {support: none, description: One file}
author: [Aerie contributors]
"""

EXAMPLES = r"""
- name: Download the wheel
  vllm_wheel:
    source: {channel: nightly, commit: 7291d1b288558d48508e1a17c37b0aa170332264, variant: cu129, cuda: "12.8"}
    home: /root/aerie
"""

RETURN = r"""
version: {description: Version of the wheel, type: str, returned: success}
sha256: {description: Its digest, type: str, returned: success}
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible.module_utils.aerie.environment import uv, vllm_wheel
from ansible.module_utils.aerie.module_io import secrets
from ansible.module_utils.aerie.module_io.result import finish
from ansible.module_utils.aerie.module_io.variables import as_text
from ansible.module_utils.aerie.shared.checks import Checks
from ansible.module_utils.aerie.shared.refusal import Refusal


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "dict", "required": True, "no_log": True},
            "home": {"type": "path", "required": True},
            "environment": {"type": "dict", "default": {}, "no_log": True},
        },
    )
    params = module.params
    secrets.hide(module, params["environment"], os.environ, *secrets.addresses_of(params["source"]))
    added = as_text(params["environment"])
    try:
        source = vllm_wheel.source_of(params["source"])
        if source is None:
            module.fail_json(msg="vllm_wheel: a release is in the lock of its stack")
        folder = Path(params["home"]) / "wheels"
        wheel = vllm_wheel.obtain(source, folder, "", uv.clean_variables(os.environ, added))
    except Refusal as refusal:
        checks = Checks()
        checks.append(refusal.as_check())
        finish(module, "provision", checks, False, {})
        return
    except OSError as error:
        module.fail_json(msg=f"vllm_wheel: {error}")
    module.exit_json(changed=True, version=wheel.version, sha256=wheel.sha256)


if __name__ == "__main__":
    main()

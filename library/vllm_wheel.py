# SPDX-License-Identifier: Apache-2.0
"""Have vLLM's wheel on the target and tell its digest."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_wheel
short_description: Download the vLLM wheel of a commit and tell its digest
description:
  - Looks a commit up in an index that has a folder for each, downloads the one wheel that fits, and checks that every
    file in it is as its RECORD says, that it is of that commit, and that its operators want the stack's CUDA.
    Obeys the variables that uv obeys - proxy, certificates, timeout, offline.
  - The action plugin of M(uv_environment) calls it where no digest is recorded yet.
options:
  source: {description: 'Channel, index, commit and variant (docs/stacks.md)', type: dict, required: true}
  home: {description: 'Folder of the target; the wheel comes into C(wheels) there', type: path, required: true}
  environment: {description: 'Variables: proxy, certificates, timeout', type: dict, default: {}}
attributes:
  check_mode: {support: none, description: The digest is not known before the download}
  diff_mode: {support: none, description: One file}
author: [Aerie contributors]
"""

EXAMPLES = r"""
- name: Have the wheel
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
from ansible.module_utils.aerie.environment.network import FetchError
from ansible.module_utils.aerie.module_io import secrets
from ansible.module_utils.aerie.module_io.result import finish
from ansible.module_utils.aerie.module_io.variables import as_text
from ansible.module_utils.aerie.shared.checks import Checks


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "dict", "required": True, "no_log": True},
            "home": {"type": "path", "required": True},
            "environment": {"type": "dict", "default": {}, "no_log": True},
        },
    )
    given = module.params
    secrets.hide(module, given["environment"], os.environ, *secrets.addresses_of(given["source"]))
    added = as_text(given["environment"])
    try:
        source = vllm_wheel.source_of(given["source"])
        if source is None:
            module.fail_json(msg="vllm_wheel: a release is in the lock of its stack")
        folder = Path(given["home"]) / "wheels"
        got = vllm_wheel.obtain(source, folder, "", uv.clean_environment(os.environ, added))
    except FetchError as error:
        checks = Checks()
        checks.add("vLLM wheel", "fail", error.found, error.wanted, error.remedy)
        finish(module, "provision", checks, False, {})
        return
    except OSError as error:
        module.fail_json(msg=f"vllm_wheel: {error}")
    module.exit_json(changed=True, version=got.version, sha256=got.sha256)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Put the host program in its place."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_program_file
short_description: Copy the host program to the target as one file
description:
  - Packs the Python files under O(source) on the controller into one zip file that Python can run, and puts it at
    O(dest). The same files always give the same bytes. The task is changed only when the bytes differ.
options:
  source: {description: Folder on the controller, type: path, required: true}
  dest: {description: Absolute path of the zip file on the target, type: path, required: true}
  content: {description: Set by the action plugin (the compressed zip as base64), type: str}
attributes:
  check_mode: {support: full, description: Says whether the file would change}
  diff_mode: {support: full, description: Lists the packed files with their digests}
author: [Aerie contributors]
"""

EXAMPLES = r"""
- name: Copy the host program
  host_program_file:
    source: "{{ playbook_dir }}/../host"
    dest: /root/aerie/aerie_host.pyz
"""

RETURN = r"""
dest: {description: Where the file lies, type: str, returned: success}
sha256: {description: Digest of the file, type: str, returned: success}
"""

import base64
import io
import os
import zipfile
import zlib
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible.module_utils.aerie.shared.digests import sha256_bytes
from ansible.module_utils.aerie.shared.durable import write_durably


def listing(data: bytes) -> str:
    """One line per packed file: digest and name."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            lines = [f"{sha256_bytes(packed.read(name))}  {name}\n" for name in packed.namelist()]
    except zipfile.BadZipFile:
        return "not a zip file\n" if data else ""
    return "".join(lines)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "path", "required": True},
            "dest": {"type": "path", "required": True},
            "content": {"type": "str"},
        },
        supports_check_mode=True,
    )
    if not module.params["content"]:
        module.fail_json(msg="host_program_file: its action plugin has not packed the program; see ansible.cfg")
    dest = Path(module.params["dest"])
    wanted = zlib.decompress(base64.b64decode(module.params["content"]))
    current = dest.read_bytes() if dest.is_file() else b""
    changed = current != wanted
    diff = {
        "before_header": str(dest),
        "after_header": str(dest),
        "before": listing(current) if changed else "",
        "after": listing(wanted) if changed else "",
    }
    if changed and not module.check_mode:
        try:
            dest.parent.mkdir(parents=True, exist_ok=True)
            # A running job keeps the old file open: a new file takes its name. Several roles may do so at one time.
            temporary = dest.with_name(f".{dest.name}.{os.getpid()}")
            write_durably(dest, wanted, mode=0o644, temporary=temporary)
        except OSError as error:
            module.fail_json(msg=f"cannot write {dest}: {error}")
    module.exit_json(changed=changed, dest=str(dest), sha256=sha256_bytes(wanted), diff=diff)


if __name__ == "__main__":
    main()

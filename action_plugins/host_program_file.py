# SPDX-License-Identifier: Apache-2.0
"""Pack the host program on the controller and hand it to the module of the same name, in one round trip."""

from __future__ import annotations

import base64
import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Stored times would differ from checkout to checkout; this is the earliest that a zip file can name.
EPOCH = (1980, 1, 1, 0, 0, 0)


def pack(source: Path) -> bytes:
    """Zip every Python file under ``source``: the same files give the same bytes on every controller.

    Entries are stored and not compressed, because the output of zlib depends on its build.
    """
    names = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.py"))
    if "__main__.py" not in names:
        raise AnsibleActionFail(f"host_program_file: {source} has no __main__.py: it is not the host program")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as packed:
        for name in names:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            packed.writestr(entry, (source / name).read_bytes())
    return buffer.getvalue()


class ActionModule(ActionBase):
    """The controller's half of ``host_program_file``."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Pack, then run the module with the packed bytes."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        source = Path(str(arguments.get("source", "")))
        if not source.is_absolute():
            raise AnsibleActionFail(f"host_program_file: source is {source}, wanted an absolute path on the controller")
        arguments["content"] = base64.b64encode(zlib.compress(pack(source))).decode()
        module_result = self._execute_module("host_program_file", arguments, task_vars=task_vars)
        # The bytes are no information for a reader of the log.
        module_result.get("invocation", {}).get("module_args", {}).pop("content", None)
        result.update(module_result)
        return result

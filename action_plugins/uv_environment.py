# SPDX-License-Identifier: Apache-2.0
"""Give the module the lock, and the controller's uv where the target has not got it yet."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

MODULE = "uv_environment"


def controller_uv() -> Path:
    """The uv beside the Python that runs Ansible: the one that requirements.txt locks; else the first on PATH."""
    beside = Path(sys.executable).parent / "uv"
    found = beside if beside.is_file() else shutil.which("uv")
    if not found:
        raise AnsibleActionFail("no uv on the controller: run `make .venv`, or set ml_env_uv to a uv of the host")
    return Path(found)


class ActionModule(ActionBase):
    """The controller's half of `uv_environment`."""

    TRANSFERS_FILES = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call the module once; a second time with uv at hand when it asks for it."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        lock = Path(str(arguments.get("lock", "")))
        if not lock.is_file():
            raise AnsibleActionFail(f"no lock {lock} on the controller: make lock STACK={arguments.get('stack')}")
        arguments["lock_text"] = lock.read_text(encoding="utf-8")
        # A bundle brings its own, and what exists is not touched.
        if not arguments.get("uv") and arguments.get("source") not in ("bundle", "existing"):
            arguments["uv_sha256"] = hashlib.sha256(controller_uv().read_bytes()).hexdigest()
        answer = self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars)
        if answer.get("needs_uv"):
            answer = self.with_uv(arguments, task_vars)
        # Half a megabyte of lock is no information for a reader of the log.
        answer.get("invocation", {}).get("module_args", {}).pop("lock_text", None)
        result.update(answer)
        return result

    def with_uv(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Transfer uv and call again."""
        folder = self._make_tmp_path()
        try:
            upload = self._transfer_file(str(controller_uv()), self._connection._shell.join_path(folder, "uv"))
            self._fixup_perms2((folder, upload))
            arguments = {**arguments, "uv_upload": upload}
            return self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars)
        finally:
            self._remove_tmp_path(folder)

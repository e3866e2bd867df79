# SPDX-License-Identifier: Apache-2.0
"""Give the module the lock, the digest of vLLM's wheel where the lock leaves vLLM out, and the controller's uv."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import aerie_paths  # noqa: F401  (makes the following importable)

from ansible.module_utils.aerie.environment import vllm_wheel
from ansible.module_utils.aerie.environment.wheel_record import RecordedWheel, settle
from ansible.module_utils.aerie.shared.checks import Check
from ansible.module_utils.aerie.shared.digests import sha256_file
from ansible.module_utils.aerie.shared.refusal import Refusal

MODULE = "uv_environment"
CHECK = "vLLM wheel"
RECORD = "restore the record as it was committed; remove it only to record the digest anew"


class EarlyResultError(Exception):
    """The task ends here, with this result."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__()
        self.result = result


def controller_uv() -> Path:
    """The uv beside the Python that runs Ansible: the one that requirements.txt locks; else the first on PATH."""
    beside = Path(sys.executable).parent / "uv"
    found = beside if beside.is_file() else shutil.which("uv")
    if not found:
        raise AnsibleActionFail("no uv on the controller: run `make .venv`, or set ml_env_uv to a uv of the host")
    return Path(found)


def result_of(check: Check, changed: bool = False) -> dict[str, Any]:
    """The result of a task that ends with one check."""
    failed = {"failed": True} if check.status == "fail" else {}
    aerie = {"section": "provision", "checks": [check.as_data()], "data": {}}
    return {**failed, "changed": changed, "msg": check.as_text(), "aerie": aerie}


class ActionModule(ActionBase):
    """The controller's half of `uv_environment`."""

    TRANSFERS_FILES = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call the module once; a second time with uv at hand when it asks for it."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        try:
            arguments["lock_text"] = self.lock_text(arguments, task_vars)
        except EarlyResultError as early:
            result.update(early.result)
            return result
        except Refusal as refusal:
            result.update(result_of(refusal.as_check()))
            return result
        # A bundle's uv must be the same file; an existing environment needs none.
        if not arguments.get("uv") and arguments.get("source") != "existing":
            arguments["uv_sha256"] = sha256_file(controller_uv())
        module_result = self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars)
        if module_result.get("needs_uv"):
            module_result = self.with_uv(arguments, task_vars)
        # Half a megabyte of lock is no information for a reader of the log.
        module_result.get("invocation", {}).get("module_args", {}).pop("lock_text", None)
        result.update(module_result)
        return result

    def lock_text(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> str:
        """The complete lock. Where the stack's lock leaves vLLM out, `wheel` in the arguments gets the wheel's digest.

        Raises `Refusal` or `EarlyResultError`.
        """
        path = Path(str(arguments.get("lock", "")))
        if not path.is_file():
            raise AnsibleActionFail(f"no lock {path} on the controller: make lock STACK={arguments.get('stack')}")
        text = path.read_text(encoding="utf-8")
        record = Path(str(arguments.pop("wheel_record", "") or ""))
        trust = bool(arguments.pop("trust_first_download", False))
        source = vllm_wheel.source_of(arguments.get("wheel") or {})
        if source is None:
            return text
        if arguments.get("source") == "existing" and not record.is_file():
            # No wheel was recorded: instead of its digest, vLLM's version and binaries are looked at.
            arguments["allowed"] = [*(arguments.get("allowed") or []), source.distribution]
            arguments["wheel"] = dataclasses.asdict(source)
            return text
        try:
            wheel = self.recorded_wheel(record, source, trust, arguments, task_vars)
        except OSError as error:
            raise Refusal(CHECK, str(error), "a record that can be read and written", RECORD) from error
        arguments["wheel"] = dataclasses.asdict(dataclasses.replace(source, sha256=wheel.sha256))
        return text.rstrip("\n") + "\n" + vllm_wheel.pin_line(source.distribution, wheel.version, wheel.sha256)

    def recorded_wheel(
        self,
        record: Path,
        source: vllm_wheel.Source,
        trust: bool,
        arguments: dict[str, Any],
        task_vars: dict[str, Any] | None,
    ) -> RecordedWheel:
        """Version and digest from the record, which is made at the first download.

        Raises `Refusal`, `OSError` or `EarlyResultError`.
        """

        def fetch() -> RecordedWheel:
            inputs = {
                "source": dataclasses.asdict(source),
                "home": arguments.get("home"),
                "environment": arguments.get("environment") or {},
            }
            download = self._execute_module(module_name="vllm_wheel", module_args=inputs, task_vars=task_vars)
            if download.get("failed"):
                raise EarlyResultError(download)
            version, sha256 = str(download["version"]), str(download["sha256"])
            if not vllm_wheel.SHA256.fullmatch(sha256) or "*" in version:
                # Ansible masks a secret wherever it occurs in a result.
                found = f"version {version}, sha256 {sha256}: a password of the inventory is a part of them"
                raise Refusal(CHECK, found, "a version and a digest to record", "change that password")
            return RecordedWheel(version, sha256)

        wheel = settle(record, source, trust, fetch, bool(self._task.check_mode))
        if wheel is None:
            found = f"would be downloaded, and its digest recorded in {record}"
            raise EarlyResultError(result_of(Check(CHECK, "n/a", found, "a recorded digest"), changed=True))
        return wheel

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

# SPDX-License-Identifier: Apache-2.0
"""Give the module the lock, the digest of vLLM's wheel where that comes from elsewhere, and the controller's uv."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import aerie_paths  # noqa: F401  (makes the following importable)

from ansible.module_utils.aerie.distributions import lock
from ansible.module_utils.aerie.environment import vllm_wheel, wheel_record
from ansible.module_utils.aerie.environment.network import FetchError

MODULE = "uv_environment"
RECORD = "restore the record as it was committed; remove it only to record the digest anew"


class AnsweredError(Exception):
    """The run of the task ends here, with a result."""

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


def answer(status: str, found: str, wanted: str, remedy: str, changed: bool = False) -> dict[str, Any]:
    """A result of one check about vLLM's wheel."""
    check = {"name": "vLLM wheel", "status": status, "found": found, "wanted": wanted, "remedy": remedy}
    failed = {"failed": True} if status == "fail" else {}
    message = f"{found}; wanted {wanted}" + (f". Remedy: {remedy}" if remedy else "")
    aerie = {"section": "provision", "checks": [check], "data": {}}
    return {**failed, "changed": changed, "msg": message, "aerie": aerie}


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
        except AnsweredError as early:
            result.update(early.result)
            return result
        # A bundle brings a copy, which must be the same; what exists is not touched.
        if not arguments.get("uv") and arguments.get("source") != "existing":
            arguments["uv_sha256"] = hashlib.sha256(controller_uv().read_bytes()).hexdigest()
        module_result = self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars)
        if module_result.get("needs_uv"):
            module_result = self.with_uv(arguments, task_vars)
        # Half a megabyte of lock is no information for a reader of the log.
        module_result.get("invocation", {}).get("module_args", {}).pop("lock_text", None)
        result.update(module_result)
        return result

    def lock_text(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> str:
        """The whole lock; where vLLM comes from elsewhere, `wheel` in the arguments gets its digest."""
        path = Path(str(arguments.get("lock", "")))
        if not path.is_file():
            raise AnsibleActionFail(f"no lock {path} on the controller: make lock STACK={arguments.get('stack')}")
        text = path.read_text(encoding="utf-8")
        record = Path(str(arguments.pop("wheel_record", "") or ""))
        trust = bool(arguments.pop("trust_first_download", False))
        try:
            source = vllm_wheel.source_of(arguments.get("wheel") or {})
            if source is None:
                return text
            if arguments.get("source") == "existing" and not record.is_file():
                # No wheel to have a digest of: its version and its binaries are looked at.
                arguments["allowed"] = [*(arguments.get("allowed") or []), source.distribution]
                arguments["wheel"] = dataclasses.asdict(source)
                return text
            known = self.known(record, source, trust, arguments, task_vars)
        except (FetchError, lock.LockError, OSError) as error:
            wanted = getattr(error, "wanted", "a record that can be read and written")
            raise AnsweredError(answer("fail", str(error), wanted, getattr(error, "remedy", RECORD))) from None
        arguments["wheel"] = dataclasses.asdict(dataclasses.replace(source, sha256=known.sha256))
        return text.rstrip("\n") + "\n" + vllm_wheel.pin_line(source.distribution, known.version, known.sha256)

    def known(
        self,
        record: Path,
        source: vllm_wheel.Source,
        trust: bool,
        arguments: dict[str, Any],
        task_vars: dict[str, Any] | None,
    ) -> wheel_record.Known:
        """Version and digest from the record, which is made at the first download."""

        def fetch() -> wheel_record.Known:
            given = {
                "source": dataclasses.asdict(source),
                "home": arguments.get("home"),
                "environment": arguments.get("environment") or {},
            }
            got = self._execute_module(module_name="vllm_wheel", module_args=given, task_vars=task_vars)
            if got.get("failed"):
                raise AnsweredError(got)
            version, sha256 = str(got["version"]), str(got["sha256"])
            if not vllm_wheel.SHA256.fullmatch(sha256) or "*" in version:
                # What Ansible hides it hides everywhere.
                found = f"version {version}, sha256 {sha256}: a password of the inventory is a part of them"
                raise AnsweredError(answer("fail", found, "what is to be recorded", "change that password"))
            return wheel_record.Known(version, sha256)

        known = wheel_record.settle(record, source, trust, fetch, bool(self._task.check_mode))
        if known is None:
            found = f"would be downloaded, and its digest recorded in {record}"
            raise AnsweredError(answer("n/a", found, "a recorded digest", "", changed=True))
        return known

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

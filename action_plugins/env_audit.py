# SPDX-License-Identifier: Apache-2.0
"""Read stack, lock and series on the controller and pass their content to the module of the same name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.plugins.loader import action_loader

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import aerie_paths  # noqa: F401  (makes the following importable)

from ansible.module_utils.aerie.distributions.lock import joined, parse
from ansible.module_utils.aerie.shared.refusal import Refusal


def parts_of(paths: object) -> list[str]:
    """The files that a lock lies in."""
    return [str(part) for part in (paths if isinstance(paths, list) else [paths])]


def read_lock(paths: object) -> list[list[str]]:
    """The pins of a lock as plain lists, without the hashes (nine tenths of the file). Raises a ``Refusal``."""
    return [list(pin) for pin in parse(joined(parts_of(paths)))]


def read_series(directories: object) -> list[dict[str, Any]]:
    """The series, read and validated as `package_patches` does. Raises ``SeriesRefusal``."""
    plugin = action_loader.get("package_patches", class_only=True)
    series: list[dict[str, Any]] = sys.modules[plugin.__module__].read_all(directories or [])
    return series


class ActionModule(ActionBase):
    """The controller's half of ``env_audit``."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the inputs, then run the module with them."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        absent = [part for part in parts_of(arguments.get("lock"))[1:] if not Path(part).is_file()]
        if absent and self._task.check_mode:
            # The record of a wheel's digest: an earlier task would have made it.
            text = f"no {absent[0]} yet: nothing can be verified without it"
            remedy = "the first download records it; for an adopted environment write it by hand (docs/stacks.md)"
            check = {"name": "stack files", "status": "warn", "found": text, "wanted": "the lock and all its parts"}
            check["remedy"] = remedy
            result.update(changed=False, msg=text, aerie={"section": "audit", "checks": [check], "data": {}})
            return result
        try:
            arguments["pins"] = read_lock(arguments.get("lock"))
            arguments["series"] = read_series(arguments.get("series_dirs"))
        except Refusal as refusal:
            aerie = {"section": "audit", "checks": [refusal.as_check().as_data()], "data": {}}
            result.update(failed=True, changed=False, msg=str(refusal), aerie=aerie)
            return result
        module_result = self._execute_module(module_name="env_audit", module_args=arguments, task_vars=task_vars)
        for bulky in ("series", "pins"):
            # The content of lock and series would only fill the log.
            module_result.get("invocation", {}).get("module_args", {}).pop(bulky, None)
        result.update(module_result)
        return result

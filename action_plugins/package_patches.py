# SPDX-License-Identifier: Apache-2.0
"""Read and validate the series on the controller, and pass their content to the module of the same name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from ansible.plugins.action import ActionBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import aerie_paths  # noqa: F401  (makes the following importable)

from ansible.module_utils.aerie.patching.series import SeriesRefusal, from_raw, read_directory


def parse_yaml(text: str) -> object:
    """Parse YAML into plain data; raise ``ValueError`` with the place of a mistake."""
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  (both are safe)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def read_all(directories: object) -> list[dict[str, Any]]:
    """The content of every series directory, validated. Raises ``SeriesRefusal``."""
    if not isinstance(directories, list):
        raise SeriesRefusal(f"series_dirs: a list of absolute paths is wanted, found {directories!r}")
    series = []
    for directory in directories:
        path = Path(str(directory))
        if not path.is_absolute() or not path.is_dir():
            raise SeriesRefusal(f"series_dirs: {directory} is no absolute path of a directory on the controller")
        raw = read_directory(path, parse_yaml)
        from_raw(raw)
        series.append(raw)
    return series


class ActionModule(ActionBase):
    """The controller's half of ``package_patches``."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read and validate the series, then run the module with them."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        try:
            arguments["series"] = read_all(arguments.get("series_dirs"))
        except SeriesRefusal as refusal:
            aerie = {"section": "patch", "checks": [refusal.as_check().as_data()], "data": {}}
            result.update(failed=True, changed=False, msg=str(refusal), aerie=aerie)
            return result
        module_result = self._execute_module(module_name="package_patches", module_args=arguments, task_vars=task_vars)
        # The content of the series would only fill the log.
        module_result.get("invocation", {}).get("module_args", {}).pop("series", None)
        result.update(module_result)
        return result

"""Process variables from an inventory."""

from __future__ import annotations

from ansible.module_utils.aerie.module_io.variables import as_text


def test_a_variable_without_a_value_is_not_set() -> None:
    assert as_text({"HTTPS_PROXY": None, "UV_HTTP_TIMEOUT": 5, "UV_OFFLINE": True, "NO_PROXY": ""}) == {
        "UV_HTTP_TIMEOUT": "5", "UV_OFFLINE": "True", "NO_PROXY": "",
    }  # fmt: skip

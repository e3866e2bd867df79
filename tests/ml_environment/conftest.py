"""Tests that need the ML environment's own Python: `tools/host_tests.sh` runs them there."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="runs in the ML environment: tools/host_tests.sh")
pytest.importorskip("transformers")

from aerie_host.extract import command as extract  # noqa: E402  (found only now)
from aerie_host.extract import engine, model_run  # noqa: E402  (found only now)
from aerie_host.folder.layout import Folder  # noqa: E402  (found only now)
from aerie_host.spec import Spec  # noqa: E402  (found only now)
from tests.ml_environment.models import checkpoint  # noqa: E402  (found only now)
from tests.ml_environment.transformers_engine import TransformersEngine  # noqa: E402  (found only now)

# As jobs do: the process that writers are forked from finds the program by it.
os.environ["PYTHONPATH"] = str(Path(extract.__file__).parents[2])
# The models are tiny: more threads would only wait for each other, for minutes where the machine has other work.
torch.set_num_threads(1)
LAYERS = [0, 2, 4, 5]
ANSWERS = [
    "Yes.",
    "In Italy, in the middle. " * 8,
    "No.",
    "caf\u00e9 \U0001f389",
    "In Norway " * 20,
    "south",
    "Rome? Oslo!",
]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random checkpoint with a chat template."""
    return checkpoint(tmp_path_factory.mktemp("model"))


class Extraction:
    """One folder to extract into, and the means to run and to break it."""

    def __init__(self, model: Path, home: Path) -> None:
        self.data = home / "data.jsonl"
        self.output = home / "out"
        self.folder = Folder(self.output)
        self.spec: dict[str, Any] = {
            "model": str(model),
            "data": str(self.data),
            "output": str(self.output),
            "layer_ids": LAYERS,
            "max_length": 400,
            "token_budget": 150,
            "writers": 2,
            "identity": {"stack": "test", "lock": "l", "series": "s"},
            "disk_reserve": 0,
        }
        self.loads: list[TransformersEngine] = []
        self.write_data(ANSWERS)

    def write_data(self, answers: list[str], extra: str = "") -> None:
        """One conversation per answer."""
        lines = [
            json.dumps(
                {
                    "id": f"s{n}",
                    "messages": [{"role": "user", "content": f"Question {n}?"}, {"role": "assistant", "content": a}],
                }
            )
            for n, a in enumerate(answers)
        ]
        self.data.write_text("\n".join([*lines, extra]) + "\n")

    def run(self, check: bool = False, **changes: Any) -> Any:
        """One run of the command."""
        return extract.run(Spec({**self.spec, **changes}, "extract"), check)

    def engine(self, job: Any) -> TransformersEngine:
        """What is loaded in place of vLLM; counted."""
        made = TransformersEngine(str(job.model), job.layers, job.token_budget)
        self.loads.append(made)
        return made

    def digests(self) -> dict[str, tuple[str, int]]:
        """Digest and time of every sample file."""
        from aerie_host.shared.digests import sha256_file

        return {p.name: (sha256_file(p), p.stat().st_mtime_ns) for p in self.folder.training_files()}


@pytest.fixture
def extraction(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Extraction:
    """An extraction whose states come from Transformers through the seam that vLLM's come through."""
    made = Extraction(model, tmp_path)

    def load(job: Any, folder: Folder) -> engine.StatesSource:
        return engine.StatesSource(made.engine(job), folder, job.layers, job.writers)

    monkeypatch.setattr(model_run, "load_source", load)
    return made


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 3 MB."""
    if os.geteuid():
        pytest.skip("mounting needs root")
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(place)], check=False, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"this machine mounts nothing: {done.stderr}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)

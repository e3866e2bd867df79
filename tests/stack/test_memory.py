"""What an extraction of 200 batches takes and gives."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from overlay import ROOT, Environment

pytestmark = pytest.mark.stack
# What an allocator may keep back, and a journal's worth of entries in the driver.
SLACK = 16 << 20


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    environment = Environment(Path(os.environ["AERIE_TEST_ENV"]))
    done = environment.run([str(ROOT / "tests" / "stack" / "flat_memory.py"), str(tmp_path_factory.mktemp("flat"))])
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_memory_is_flat_over_200_batches_and_files_hold_their_own_rows(found: dict[str, Any]) -> None:
    early, late = found["10"], found["200"]
    assert found["tokens"] > 180 * 1024
    assert late["private"] <= 1.01 * early["private"] + SLACK, found
    assert late["dev_shm"] <= 1.01 * early["dev_shm"] + (1 << 20), found
    assert late["gpu"] <= 1.01 * early["gpu"], found
    # Names and places of the archive, and nothing that grows with the batch.
    assert found["excess"] < 4096, found


def test_steps_of_short_samples_are_full_although_two_are_under_way(found: dict[str, Any]) -> None:
    # The steps after the last samples are for telling which ended.
    assert found["short"] == [1024] * 8 + [0] * (len(found["short"]) - 8)

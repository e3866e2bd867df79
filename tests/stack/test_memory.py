"""Extraction's memory does not grow with what it has extracted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from overlay import ROOT, Environment

pytestmark = pytest.mark.stack
# What an allocator may keep back, and a journal's worth of entries in the driver.
SLACK = 16 << 20


def test_memory_is_flat_over_200_batches_and_files_hold_their_own_rows(tmp_path: Path) -> None:
    environment = Environment(Path(os.environ["AERIE_TEST_ENV"]))
    done = environment.run([str(ROOT / "tests" / "stack" / "flat_memory.py"), str(tmp_path)])
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    early, late = found["10"], found["200"]
    assert found["tokens"] > 180 * 1024
    assert late["private"] <= 1.01 * early["private"] + SLACK, found
    assert late["dev_shm"] <= 1.01 * early["dev_shm"] + (1 << 20), found
    assert late["gpu"] <= 1.01 * early["gpu"], found
    # Names and places of the archive, and nothing that grows with the batch.
    assert found["excess"] < 4096, found

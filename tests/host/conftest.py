"""Tests that need the ML environment's own Python: `tools/host_tests` runs them there."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="runs in the ML environment: tools/host_tests")
pytest.importorskip("transformers")

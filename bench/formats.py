#!/usr/bin/env python3
"""Measure reading and writing samples as .pt and as safetensors. Runs with the Python of an ML environment: --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import aerie_paths  # noqa: F401  (makes the following importable)

from bench.benchkit.formats_bench import main

if __name__ == "__main__":
    sys.exit(main())

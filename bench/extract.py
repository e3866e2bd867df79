#!/usr/bin/env python3
"""Measure extraction beside what limits it. Runs with the Python of a patched ML environment; see --help."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import aerie_paths

# The engine's workers and the writers are processes of their own.
aerie_paths.pass_to_children()
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
# On a CPU, what the stack gives to jobs too (GiB): vLLM otherwise takes a share of the machine's memory.
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

from bench.benchkit.extract_bench import main  # noqa: E402  (reads the variables above)

if __name__ == "__main__":
    sys.exit(main())

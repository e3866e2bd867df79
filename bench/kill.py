#!/usr/bin/env python3
"""Kill extractions at random moments and prove that nothing is lost. Runs with the Python of an ML environment."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import aerie_paths

# The engine's workers and the writers are processes of their own.
aerie_paths.pass_to_children()
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
# The model is tiny: what is bound to cores only gets into each other's way.
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

from bench.benchkit.kill_bench import main  # noqa: E402  (reads the variables above)

if __name__ == "__main__":
    sys.exit(main())

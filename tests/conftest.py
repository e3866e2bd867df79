"""Makes the checkout importable for every test: modules, plugins, module_utils, the host program, the tools."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import aerie_paths  # noqa: F401  (imported for what it does)

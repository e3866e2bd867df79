"""Tools for the maintainers of patch series; see docs/patches.md."""

from __future__ import annotations

from pathlib import Path

import ansible.module_utils

ROOT = Path(__file__).resolve().parent.parent.parent
if str(ROOT / "module_utils") not in ansible.module_utils.__path__:
    # Ansible ships module_utils to the hosts only; the schema of a series is the same on both sides.
    ansible.module_utils.__path__.append(str(ROOT / "module_utils"))

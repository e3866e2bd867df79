"""What the mutation table is made of: damage, a bench to judge it on, groups of rows, and the page."""

from __future__ import annotations

import sys
from pathlib import Path

import ansible.module_utils

ROOT = Path(__file__).resolve().parents[2]
ansible.module_utils.__path__.append(str(ROOT / "module_utils"))
sys.path.append(str(ROOT / "host"))

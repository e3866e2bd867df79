"""Makes `ansible.module_utils.aerie`, `aerie_host`, `library.*` and the plugins importable, as Ansible and the payload do."""

from __future__ import annotations

import sys
from pathlib import Path

import ansible.module_utils

ROOT = Path(__file__).resolve().parent.parent

for folder in (ROOT, ROOT / "host"):
    sys.path.insert(0, str(folder))
ansible.module_utils.__path__.append(str(ROOT / "module_utils"))

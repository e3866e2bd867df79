"""Makes importable what Ansible and the payload would: module_utils, modules, plugins, the host program."""

from __future__ import annotations

import sys
from pathlib import Path

import ansible.module_utils

ROOT = Path(__file__).resolve().parent.parent

for folder in (ROOT, ROOT / "host"):
    sys.path.insert(0, str(folder))
ansible.module_utils.__path__.append(str(ROOT / "module_utils"))

"""The import path of this checkout: a command, a plugin or a test imports this module before the checkout's own code.

Python and Ansible run a command or a plugin by its path, so that it cannot find this module. It begins with two lines:

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import aerie_paths

Modules that such a file imports need no lines of their own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent
HOST_PROGRAM = CHECKOUT / "host"
MODULE_UTILS = CHECKOUT / "module_utils"
PLACES = [str(CHECKOUT), str(HOST_PROGRAM)]

sys.path[:0] = [place for place in PLACES if place not in sys.path]
try:
    import ansible.module_utils
except ImportError:
    pass  # The Python of an ML environment has no Ansible, and runs the host program alone.
else:
    # Ansible adds the folder to modules only, and the controller imports it too.
    if str(MODULE_UTILS) not in ansible.module_utils.__path__:
        ansible.module_utils.__path__.append(str(MODULE_UTILS))


def pass_to_children() -> None:
    """Name the same folders in PYTHONPATH: child processes that are not forked look there."""
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*PLACES, *([inherited] if inherited else [])])

"""The Python of an environment, and the Python that one is built from."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from ansible.module_utils.aerie.distributions import pythons
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.environment.demand import Demand

# Without `site` (-S): what is installed does not matter, and reading it takes longer than the rest.
PROBE = ["-I", "-S", "-c", "import platform; print(platform.python_version())"]
REMEDY = "choose another Python, or make the environment anew"


def python_version(python: str) -> str:
    """`major.minor.patch` of an interpreter, by running it. Raises `Refusal`."""
    try:
        done = subprocess.run([python, *PROBE], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise Refusal("python", f"{python} does not run: {error}", "a Python that runs", REMEDY) from error
    if done.returncode:
        raise Refusal("python", f"{python} does not run: {done.stderr.strip()[-300:]}", "a Python that runs", REMEDY)
    return done.stdout.strip()


def recorded_version(root: Path) -> str:
    """The version of the Python of an environment that was just built or verified, as uv wrote it down."""
    found = re.search(r"^version_info = (.+)$", (root / "pyvenv.cfg").read_text(encoding="utf-8"), re.MULTILINE)
    return found.group(1) if found else python_version(str(root / "bin" / "python"))


def minor(version: str) -> list[str]:
    """Major and minor: what compiled distributions depend on."""
    return version.split(".")[:2]


def chosen_python(demand: Demand) -> tuple[str, str]:
    """Path and version of the Python to build from. Raises `Refusal` that lists what was tried."""
    chosen, tried = pythons.find(demand.python, demand.python_versions, dict(os.environ))
    if chosen is None:
        found, wanted = f"none fits: {pythons.describe(tried)}", f"Python {demand.python_versions}"
        raise Refusal("python", found, wanted, f"install one, or name it in ml_env_python ({demand.python_versions})")
    return chosen.path, chosen.version

"""Running uv so that only the lock decides what comes out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Mapping

from ansible.module_utils.aerie.shared.durable import write_durably
from ansible.module_utils.aerie.shared.refusal import Refusal

# A site may choose where files come from and how they travel; it may not choose what they are.
ALLOWED = frozenset(
    (
        *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX_STRATEGY", "UV_FIND_LINKS"),
        *("UV_CACHE_DIR", "UV_LINK_MODE", "UV_OFFLINE", "UV_NO_INDEX"),
        *("UV_CONCURRENT_DOWNLOADS", "UV_CONCURRENT_INSTALLS"),
        *("UV_HTTP_TIMEOUT", "UV_HTTP_CONNECT_TIMEOUT", "UV_HTTP_RETRIES", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS"),
        *("UV_INSECURE_HOST", "UV_KEYRING_PROVIDER"),
    )
)
INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL")
# Where uv would look for distributions.
SOURCES = (*INDEX_VARIABLES, "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
# Lines of a tool's output that a message shows.
TAIL = 25
REMEDY = "see what uv said; mirrors, proxies and certificates go into ml_env_uv_environment"


def clean_variables(host: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """The variables that uv runs with: those of the host and of the inventory, but for what could change the result.

    Dropped are UV_NO_VERIFY_HASHES, UV_OVERRIDE, UV_CONSTRAINT, UV_PYTHON, UV_CONFIG_FILE and their like, and the
    variables of Python. A mirror and certificates that are set for pip alone are taken over for uv.
    """
    merged = {**host, **added}
    kept = {
        name: value
        for name, value in merged.items()
        if (name in ALLOWED or _is_credential(name) if name.startswith("UV_") else not name.startswith("PYTHON"))
    }
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        kept.pop(name, None)
    if merged.get("PIP_INDEX_URL") and not any(name in kept for name in INDEX_VARIABLES):
        kept["UV_DEFAULT_INDEX"] = merged["PIP_INDEX_URL"]
    if merged.get("PIP_CERT") and "SSL_CERT_FILE" not in kept:
        kept["SSL_CERT_FILE"] = merged["PIP_CERT"]
    return kept


def _is_credential(name: str) -> bool:
    return name.startswith("UV_INDEX_") and name.endswith(("_USERNAME", "_PASSWORD"))


def cache_folder(variables: Mapping[str, str], home: Path, target: Path) -> Path:
    """The cache of uv: the site's; else the usual one, or one in `home`, if it is on the filesystem of `target`.

    Else one beside `target`: hard links need one filesystem.
    """
    if variables.get("UV_CACHE_DIR"):
        return Path(variables["UV_CACHE_DIR"])
    base = variables.get("XDG_CACHE_HOME") or str(Path(variables.get("HOME") or "/root") / ".cache")
    usual = Path(base) / "uv"
    near = (folder for folder in (usual, home / "uv-cache") if device(folder) == device(target))
    return next(near, target.parent / "uv-cache")


def device(path: Path) -> int:
    """The filesystem that a path is or will be on."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.stat().st_dev


def run(uv: str, arguments: list[str], variables: Mapping[str, str]) -> str:
    """Run uv and return its output. Raises `Refusal` with the end of what uv said."""
    command = [uv, *arguments]
    try:
        done = subprocess.run(command, env=dict(variables), capture_output=True, text=True, check=False)
    except OSError as error:
        found = f"{uv} does not run here: {error}"
        raise Refusal("build", found, "a uv that runs", "name another in ml_env_uv") from error
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-TAIL:])
        found = f"uv {' '.join(arguments[:2])} ended with {done.returncode}: {said}"
        raise Refusal("build", found, "the distributions of the lock, installed", REMEDY)
    return done.stdout


def install(source: Path, target: Path) -> None:
    """Copy a uv to its place, executable, complete or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # Several runs may do this at the same time.
    temporary = target.with_name(f".uv-{os.getpid()}")
    write_durably(target, source.read_bytes(), mode=0o755, temporary=temporary)

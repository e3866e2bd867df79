"""Running uv so that only the lock decides what comes out."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Mapping

# Where files come from and how they travel may differ from site to site; what they are may not.
KEPT = frozenset(
    (
        *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX_STRATEGY", "UV_FIND_LINKS"),
        *("UV_CACHE_DIR", "UV_LINK_MODE", "UV_OFFLINE", "UV_NO_INDEX"),
        *("UV_CONCURRENT_DOWNLOADS", "UV_CONCURRENT_INSTALLS"),
        *("UV_HTTP_TIMEOUT", "UV_HTTP_CONNECT_TIMEOUT", "UV_HTTP_RETRIES", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS"),
        *("UV_INSECURE_HOST", "UV_KEYRING_PROVIDER"),
    )
)
INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL")
# Where else uv would look for distributions.
SOURCES = (*INDEX_VARIABLES, "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
TAIL = 25


class ToolError(Exception):
    """uv could not do it; the message holds the end of what it said."""


def clean_environment(given: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """The variables uv runs with: everything of the host but what could change the result.

    That drops UV_NO_VERIFY_HASHES, UV_OVERRIDE, UV_CONSTRAINT, UV_PYTHON, UV_CONFIG_FILE and their like, and what would
    lead Python elsewhere. `added` comes from the inventory and obeys the same rule. A site that only told pip about its
    mirror is understood.
    """
    merged = {**given, **added}
    kept = {
        name: value
        for name, value in merged.items()
        if (name in KEPT or _is_credential(name) if name.startswith("UV_") else not name.startswith("PYTHON"))
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


def cache_folder(environment: Mapping[str, str], home: Path, place: Path) -> Path:
    """Uv's cache: as the site says, else the usual one or one in `home`, whichever hard links lead from to `place`.

    Where they do from neither, one beside `place`.
    """
    if environment.get("UV_CACHE_DIR"):
        return Path(environment["UV_CACHE_DIR"])
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or "/root") / ".cache")
    usual = Path(base) / "uv"
    near = (folder for folder in (usual, home / "uv-cache") if device(folder) == device(place))
    return next(near, place.parent / "uv-cache")


def device(path: Path) -> int:
    """The filesystem that a path is or will be on."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.stat().st_dev


def run(uv: str, arguments: list[str], environment: Mapping[str, str]) -> str:
    """Run uv; its output. Raises `ToolError`."""
    command = [uv, *arguments]
    try:
        done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
    except OSError as error:
        raise ToolError(f"{uv} does not run here: {error}") from error
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-TAIL:])
        raise ToolError(f"uv {' '.join(arguments[:2])} ended with {done.returncode}: {said}")
    return done.stdout


def sha256_of(path: Path) -> str:
    """Digest of a file, empty when there is none."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            for chunk in iter(lambda: stream.read(1 << 20), b""):
                digest.update(chunk)
    except OSError:
        return ""
    return digest.hexdigest()


def install(upload: Path, target: Path) -> None:
    """Put an uploaded uv in its place, executable, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=str(target.parent), prefix=".uv-")
    os.close(handle)
    shutil.copyfile(str(upload), name)
    Path(name).chmod(0o755)
    Path(name).replace(target)

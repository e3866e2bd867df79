"""Versions of installed distributions, checked against the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible.module_utils.aerie.distributions.metadata_folders import MetadataFolder, is_alias
from ansible.module_utils.aerie.distributions.names import normalize
from ansible.module_utils.aerie.distributions.versions import meets_pin

if TYPE_CHECKING:
    from ansible.module_utils.aerie.shared.checks import Checks

REMEDY = "make the environment as the lock says (tag provision)"
# What an engineer asks for first when something does not fit; each gets a check of its own.
MAIN = ("speculators", "torch", "torchvision", "torchaudio", "transformers", "triton", "numpy", "flashinfer-python")
MANY = 10


def check(
    checks: Checks, found: list[MetadataFolder], wanted: dict[str, str], vllm_distribution: str, allowed: list[str]
) -> dict[str, str]:
    """Compare what is installed with the pins that apply; return the versions of the main distributions."""
    real = [folder for folder in found if not is_alias(folder, vllm_distribution)]
    versions = {folder.name: folder.version for folder in real}
    _add_copies(checks, real)
    main = [normalize(vllm_distribution), *MAIN]
    main += [name for name in wanted if name.startswith("flashinfer") and name not in main]
    shown: dict[str, str] = {}
    wrong = 0
    locked_main = [name for name in main if name in wanted]
    for name in [*locked_main, *sorted(set(wanted) - set(main))]:
        has, needs = versions.get(name), wanted[name]
        ok = has is not None and (not needs or meets_pin(has, needs))
        wrong += not ok
        if name in main:
            shown[name] = has or "missing"
        if name in main or not ok:
            _add_version(checks, name, has, needs, ok)
    _add_extra(checks, versions, wanted, allowed)
    checks.require(
        "distributions of the lock",
        not wrong,
        f"{len(wanted) - wrong} of {len(wanted)} installed at the locked version",
        f"all {len(wanted)}",
        REMEDY if wrong else "",
    )
    return shown


def _add_version(checks: Checks, name: str, has: str | None, needs: str, ok: bool) -> None:
    remedy = "" if ok else f"{REMEDY}; {name} was changed by hand or by another installer"
    checks.require(f"version of {name}", ok, has or "not installed", needs or "installed", remedy)


def _add_copies(checks: Checks, real: list[MetadataFolder]) -> None:
    names = [folder.name for folder in real]
    for name in sorted({name for name in names if names.count(name) > 1}):
        places = ", ".join(folder.path.name for folder in real if folder.name == name)
        remedy = f"remove all copies of {name} and install it once (tag provision)"
        checks.add(f"copies of {name}", "fail", places, "one", remedy)


def _add_extra(checks: Checks, versions: dict[str, str], wanted: dict[str, str], allowed: list[str]) -> None:
    permitted = {normalize(name) for name in allowed}
    extra = sorted(name for name in versions if name not in wanted and name not in permitted)
    shown = ", ".join(f"{name} {versions[name]}" for name in extra[:MANY])
    if len(extra) > MANY:
        shown += f" and {len(extra) - MANY} more"
    remedy = f"remove them (tag provision), or add them to the stack's lock: {shown}" if extra else ""
    checks.require("distributions outside the lock", not extra, shown or "none", "none", remedy)

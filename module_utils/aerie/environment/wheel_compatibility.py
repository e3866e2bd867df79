"""Whether an installed vLLM is the build that was demanded and fits the lock, read without importing it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Mapping

from ansible.module_utils.aerie.distributions import lock
from ansible.module_utils.aerie.distributions.installed import site_packages_of
from ansible.module_utils.aerie.distributions.metadata_folders import metadata_folders
from ansible.module_utils.aerie.distributions.names import PATTERN, normalize
from ansible.module_utils.aerie.distributions.versions import meets_pin
from ansible.module_utils.aerie.environment.comparison import Difference
from ansible.module_utils.aerie.environment.wheel_name import file_of, is_of, parse_name
from ansible.module_utils.aerie.shared import elf

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.environment.vllm_wheel import Source

TORCH_CUDA = re.compile(r"^cuda(?:\s*:[^=]*)?\s*=\s*(?:'([\d.]+)'|None)", re.MULTILINE)
EXACT = re.compile(rf"({PATTERN})(?:\s*\[[^\]]*\])?\s*\(?==\s*([^\s;,)]+)\)?\s*(?:;\s*(.+))?")


def misfits(root: Path, source: Source, versions: Mapping[str, str], python: str) -> list[Difference]:
    """Each way in which vLLM is another build than demanded, or does not fit the distributions beside it."""
    name = normalize(source.distribution)
    version = versions.get(name, "")
    found = []
    if source.channel == "nightly" and not is_of(version, source.commit):
        found.append(Difference(name, version or "not installed", f"a build of commit {source.commit}"))
    named = parse_name(file_of(source.location))
    if named and not meets_pin(version, named.version):
        found.append(Difference(name, version or "not installed", f"{named.version}, as the name of its wheel says"))
    for site in site_packages_of(root):
        found += _cuda(site, source.cuda)
        found += _requirements(site, name, versions, python)
    return found


def _cuda(site: Path, stack_cuda: str) -> list[Difference]:
    """Binaries of vLLM that need another CUDA than torch brings; those of a CPU build need none."""
    package, torch = site / "vllm", site / "torch" / "version.py"
    found = TORCH_CUDA.search(torch.read_text(encoding="utf-8")) if stack_cuda and torch.is_file() else None
    brings = {found.group(1).split(".")[0]} if found and found.group(1) else set()
    wants = f"CUDA {'/'.join(brings) or 'none'}" + (", which torch brings" if stack_cuda else "")
    wrong = []
    if stack_cuda and package.is_dir() and not list(package.glob("_C.*so")):
        wrong.append(Difference("vllm/_C", "missing: a build without compiled operators", wants))
    for path in sorted(package.glob("*.so")):
        try:
            asks = elf.cuda_majors(elf.needed(path))
        except elf.ElfError as error:
            wrong.append(Difference(path.name, str(error), "a binary that can be read"))
            continue
        # Not every binary asks for CUDA; the one with the operators does.
        if asks - brings or (path.name.startswith("_C.") and asks != brings):
            wrong.append(Difference(f"vllm/{path.name}", f"wants CUDA {'/'.join(sorted(asks)) or 'none'}", wants))
    return wrong


def _requirements(site: Path, name: str, versions: Mapping[str, str], python: str) -> list[Difference]:
    """Exact versions that the wheel requires and the lock does not have: the lock is for another commit."""
    variables = lock.marker_variables(python)
    wrong = []
    for folder in metadata_folders([site]):
        if folder.name != name:
            continue
        text = (folder.path / "METADATA").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
        for line in re.findall(r"^Requires-Dist: *(.+)$", text, re.MULTILINE):
            match = EXACT.fullmatch(line.strip())
            if match is None or (match.group(3) and not lock.evaluate(match.group(3), variables)):
                continue
            wanted, installed = match.group(2), versions.get(normalize(match.group(1)), "")
            # Local parts do not count: a CPU build requires torch 2.10.0+cpu, registries deliver 2.10.0.
            if installed.split("+")[0] != wanted.split("+")[0]:
                wrong.append(
                    Difference(match.group(1), installed or "not installed", f"{wanted}, which {name} requires")
                )
    return wrong

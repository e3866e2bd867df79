"""Damage to the properties of captured states, as declared in properties.yml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aerie_host.truth.names import CALLS, NAMES
from tools.mutationkit.mutating import CannotMutateError

FILE = Path(__file__).with_name("properties.yml")


@dataclass(frozen=True)
class Edit:
    """One text of one file, and what stands there afterwards."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Damage:
    """The smallest change to running code that breaks a property, and how an engine is built to see it.

    Attributes:
        breaks: what is broken.
        damage: how, in words.
        edits: the change.
        cases: what the engine is asked for.
        caches: ``ample`` or ``small``.
        tensor_parallel: ranks.
        architecture: the checkpoint.
    """

    breaks: str
    damage: str
    edits: tuple[Edit, ...]
    cases: tuple[str, ...]
    caches: str = "ample"
    tensor_parallel: int = 1
    architecture: str = "llama"

    @property
    def spec(self) -> dict[str, Any]:
        """Inputs of the command truth."""
        return {
            "architectures": [self.architecture],
            "cases": list(self.cases),
            "caches": [self.caches],
            "tensor_parallel_sizes": [self.tensor_parallel],
        }


def damages() -> list[Damage]:
    """Every declared damage. Raises ``ValueError`` for one that names no case or one that does not exist."""
    found = []
    for one in yaml.safe_load(FILE.read_text(encoding="utf-8")):
        damage = Damage(**{**one, "edits": tuple(Edit(**edit) for edit in one["edits"]), "cases": tuple(one["cases"])})
        if not damage.cases or not set(damage.cases) <= {*NAMES, *CALLS}:
            raise ValueError(f"{damage.damage}: cases are of {', '.join((*NAMES, *CALLS))}")
        found.append(damage)
    return found


def damaged(site: Path, edits: tuple[Edit, ...]) -> dict[Path, bytes]:
    """The new bytes of each edited file. Raises ``CannotMutateError`` unless every old text stands exactly once."""
    texts: dict[Path, str] = {}
    for edit in edits:
        path = site / edit.file
        if path not in texts and not path.is_file():
            raise CannotMutateError(f"{edit.file} does not exist")
        text = texts.get(path) or path.read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            raise CannotMutateError(f"{edit.file} has {edit.old!r} {text.count(edit.old)} times, wanted once")
        texts[path] = text.replace(edit.old, edit.new)
    return {path: text.encode("utf-8") for path, text in texts.items()}

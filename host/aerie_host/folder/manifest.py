"""``manifest.json`` as the judge needs it: read whole, believed in nothing, refused in words."""

from __future__ import annotations

import dataclasses
import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from aerie_host.folder.expectation import Expected
from aerie_host.folder.layout import SAFETENSORS, TAKEN_BY_TRAINING
from aerie_host.shared import shard as shards
from aerie_host.shared.refusal import UsageRefusal
from aerie_host.shared.shard import WHOLE, Shard

if TYPE_CHECKING:
    from pathlib import Path

VERSION = 1
ITEM: dict[str, type] = {
    **dict.fromkeys(("index", "length", "trainable", "bytes"), int),
    **dict.fromkeys(("file", "sha256", "tokens_sha256"), str),
}
FIELDS: dict[str, type] = {"version": int, "layers": list, "hidden_size": int, "model": dict, "samples": list}
KINDS = {int: "a whole number", str: "text", list: "a list", dict: "an object"}


class ManifestError(ValueError):
    """The file is no manifest that can be believed; the message says what is wrong with it."""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What an extraction says of itself."""

    layers: tuple[int, ...]
    hidden_size: int
    model: str
    model_digest: str
    samples: list[Expected]
    skipped: list[int]
    truncated: int
    shard: Shard = WHOLE

    @property
    def tokens(self) -> int:
        """Tokens of all samples."""
        return sum(one.length or 0 for one in self.samples)


def _field(where: str, values: dict[str, Any], name: str, kind: type) -> Any:
    if name not in values:
        raise ManifestError(f"{where}lacks {name!r}")
    value = values[name]
    negative = isinstance(value, int) and value < 0
    if not isinstance(value, kind) or isinstance(value, bool) or negative:
        raise ManifestError(f"{where}{name!r} is {value!r:.80}, wanted {KINDS[kind]}")
    return value


def _sample(number: int, item: object) -> Expected:
    where = f"sample {number} "
    if not isinstance(item, dict):
        raise ManifestError(f"{where}is {item!r:.80}, wanted an object")
    values = {name: _field(where, item, name, kind) for name, kind in ITEM.items()}
    path = PurePosixPath(values["file"])
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise ManifestError(f"{where}names {values['file']!r}, a file outside the folder")
    if not path.name.endswith((TAKEN_BY_TRAINING, f".{SAFETENSORS}")):
        raise ManifestError(f"{where}names {values['file']!r}, which training does not read")
    return Expected(**values)


def _document(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise ManifestError(f"cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise ManifestError(f"is no JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except ValueError as error:
        raise ManifestError(f"is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise ManifestError(f"holds {type(values).__name__}, wanted an object")
    return values


def read(path: Path) -> Manifest:
    """Read and check the manifest; ``ManifestError`` in words when it is broken."""
    values = _document(path)
    if _field("", values, "version", int) != VERSION:
        raise ManifestError(f"has version {values['version']!r}, this program reads {VERSION}")
    fields = {name: _field("", values, name, kind) for name, kind in FIELDS.items()}
    layers = fields["layers"]
    if not layers or not all(isinstance(one, int) and not isinstance(one, bool) for one in layers):
        raise ManifestError(f"'layers' is {layers!r:.80}, wanted whole numbers")
    samples = [_sample(number, item) for number, item in enumerate(fields["samples"])]
    seen: set[str] = set()
    for number, one in enumerate(samples):
        if one.file in seen:
            raise ManifestError(f"sample {number} names {one.file!r} a second time")
        seen.add(one.file)
    skipped = values.get("skipped", [])
    data = values.get("data")
    try:
        shard = shards.parse(str(data.get("shard", WHOLE)) if isinstance(data, dict) else str(WHOLE))
    except UsageRefusal as error:
        raise ManifestError(f"names no shard: {error}") from error
    return Manifest(
        layers=tuple(layers),
        hidden_size=fields["hidden_size"],
        model=str(fields["model"].get("path", "")),
        model_digest=str(fields["model"].get("digest", "")),
        samples=samples,
        skipped=[item["index"] for item in skipped if isinstance(item, dict) and isinstance(item.get("index"), int)],
        truncated=len(values.get("truncated", [])),
        shard=shard,
    )

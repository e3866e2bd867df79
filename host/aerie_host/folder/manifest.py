"""``manifest.json``: what an extraction says about its folder. This module writes it and reads it.

Parse and validate; errors name the field that is wrong.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from aerie_host.folder.record import FieldError, SampleRecord, read_field
from aerie_host.shared import shard as shards
from aerie_host.shared.model_config import CONVENTION
from aerie_host.shared.refusal import Refusal, UsageRefusal
from aerie_host.shared.shard import WHOLE, Shard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aerie_host.data.row_kinds import Skipped

VERSION = 1
NAME = "manifest"
WANTED = "one as Aerie writes it"
REMEDY = (
    "run the extraction again (--tags extract). If another program wrote this manifest.json, move it away: "
    "the samples are then judged without it"
)


@dataclasses.dataclass(frozen=True)
class DataDescription:
    """The data file of an extraction.

    Attributes:
        path: where it is on the host.
        form: format and kinds of rows, in words.
        unit: what its numbers count: "line" or "row".
    """

    path: Path
    form: str
    unit: str


def make(
    fingerprint: dict[str, Any],
    *,
    model: Path,
    hidden_size: int,
    data: DataDescription,
    loss_mask: str,
    records: Sequence[SampleRecord],
    skipped: Sequence[Skipped],
    truncated: Sequence[Skipped],
) -> dict[str, Any]:
    """The content of ``manifest.json``.

    ``fingerprint``: of the extraction; layers, dtype and digests are taken from it. ``hidden_size``: numbers per token
    and layer. ``loss_mask``: how the masks were made, in words. ``skipped``: rows that gave no sample. ``truncated``:
    rows whose sample was cut.
    """
    return {
        "version": VERSION,
        "model": {"path": str(model), "digest": fingerprint["model"]},
        "layers": fingerprint["layers"],
        "convention": CONVENTION,
        "dtype": fingerprint["dtype"],
        "hidden_size": hidden_size,
        "stack": fingerprint["stack"],
        "lock": fingerprint["lock"],
        "series": fingerprint["series"],
        "data": {
            "path": str(data.path),
            "digest": fingerprint["data"],
            "format": data.form,
            "unit": data.unit,
            "shard": fingerprint["shard"],
            "max_length": fingerprint["samples"]["max_length"],
        },
        "loss_mask": loss_mask,
        "tokens": sum(record.length for record in records),
        "trainable": sum(record.trainable for record in records),
        "bytes": sum(record.bytes for record in records),
        "skipped": [dataclasses.asdict(row) for row in skipped],
        "truncated": [dataclasses.asdict(row) for row in truncated],
        "fingerprint": fingerprint,
        "samples": [record.as_data() for record in records],
    }


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The part of a manifest that other stages use.

    Attributes:
        layers: decoder layers, in the order of the tensors in each file.
        hidden_size: numbers per token and layer.
        model: path of the target model on the host that extracted.
        model_digest: digest of the model's folder; empty where the manifest has none.
        samples: one record for each file, in the order of the data.
        skipped: places (from 0) of the rows that gave no sample.
        truncated: how many samples were cut.
        shard: the part of the data that the folder holds.
    """

    layers: tuple[int, ...]
    hidden_size: int
    model: str
    model_digest: str
    samples: list[SampleRecord]
    skipped: list[int]
    truncated: int
    shard: Shard = WHOLE

    @property
    def tokens(self) -> int:
        """Tokens of all samples."""
        return sum(record.length for record in self.samples)


def read(path: Path) -> Manifest:
    """Read and check a manifest. ``Refusal`` names the field that is wrong."""
    try:
        return _parse(_document(path))
    except FieldError as error:
        raise Refusal(NAME, f"manifest.json {error}", WANTED, REMEDY, str(path)) from error


def read_records(values: dict[str, Any]) -> list[SampleRecord]:
    """The samples' records of a manifest that is parsed JSON; ``FieldError`` when one of them is not valid."""
    records: list[SampleRecord] = []
    files: set[str] = set()
    for number, item in enumerate(read_field(values, "samples", list)):
        try:
            record = SampleRecord.from_data(item)
        except FieldError as error:
            raise FieldError(f"sample {number} {error}") from error
        if record.file in files:
            raise FieldError(f"sample {number} names {record.file!r} a second time")
        files.add(record.file)
        records.append(record)
    return records


def _document(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise FieldError(f"cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise FieldError(f"is no JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except ValueError as error:
        raise FieldError(f"is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise FieldError(f"holds {type(values).__name__}, wanted an object")
    return values


def _parse(values: dict[str, Any]) -> Manifest:
    if read_field(values, "version", int) != VERSION:
        raise FieldError(f"has version {values['version']!r}, this program reads {VERSION}")
    layers = read_field(values, "layers", list)
    if not layers or not all(isinstance(layer, int) and not isinstance(layer, bool) for layer in layers):
        raise FieldError(f"'layers' is {layers!r:.80}, wanted whole numbers")
    hidden_size, model = read_field(values, "hidden_size", int), read_field(values, "model", dict)
    return Manifest(
        layers=tuple(layers),
        hidden_size=hidden_size,
        model=str(model.get("path", "")),
        model_digest=str(model.get("digest", "")),
        samples=read_records(values),
        skipped=_row_indices(values, "skipped"),
        truncated=len(_row_indices(values, "truncated")),
        shard=_shard(values.get("data")),
    )


def _row_indices(values: dict[str, Any], name: str) -> list[int]:
    """Places of the rows in a list of rows; a manifest without the list has none."""
    if name not in values:
        return []
    return [_row_index(row, f"row {number} of {name!r}") for number, row in enumerate(read_field(values, name, list))]


def _row_index(row: object, where: str) -> int:
    try:
        return int(read_field(row if isinstance(row, dict) else {}, "index", int))
    except FieldError as error:
        raise FieldError(f"{where} {error}") from error


def _shard(data: object) -> Shard:
    """The shard in the manifest's ``data``; manifests from before there were shards have none."""
    name = data.get("shard", str(WHOLE)) if isinstance(data, dict) else str(WHOLE)
    try:
        return shards.parse(str(name))
    except UsageRefusal as error:
        raise FieldError(f"'shard' of 'data' is {name!r:.80}, wanted i/n with i from 1 to n") from error

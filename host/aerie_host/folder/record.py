"""The record of one sample: a line of ``journal.jsonl``, and an item of ``samples`` in ``manifest.json``."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from aerie_host.folder.sample_format import SAFETENSORS, TAKEN_BY_TRAINING

# JSON has no bound for whole numbers; every number of a record fits into a signed 64-bit integer.
LARGEST = 2**63 - 1
KINDS = {int: "a whole number", str: "text", list: "a list", dict: "an object"}


class FieldError(ValueError):
    """A record or a manifest is not valid. The message names the field that is wrong."""


def read_field(values: dict[str, Any], name: str, kind: type) -> Any:
    """The value of the field ``name``, of the type ``kind``; whole numbers are 0 to ``LARGEST``.

    ``FieldError`` when the field is missing or has another type.
    """
    if name not in values:
        raise FieldError(f"lacks {name!r}")
    value = values[name]
    out_of_range = isinstance(value, int) and not 0 <= value <= LARGEST
    # bool is a kind of int in Python; here they are different things.
    if not isinstance(value, kind) or isinstance(value, bool) or out_of_range:
        raise FieldError(f"{name!r} is {value!r:.80}, wanted {KINDS[kind]}")
    return value


@dataclasses.dataclass(frozen=True)
class SampleRecord:
    """One finished sample. The names and types of the attributes are the keys and types on disk.

    Attributes:
        index: place of the sample's row in the data, from 0; also the number in the file's name.
        line: line or row number in the data file, from 1.
        id: id that the row has in the data; empty when it has none.
        file: name of the sample's file, relative to the folder.
        length: tokens.
        trainable: tokens that the loss mask marks.
        bytes: size of the file.
        sha256: digest of the file, hexadecimal.
        tokens_sha256: digest of token ids and loss mask, hexadecimal (``Sample.digest``).
    """

    index: int
    line: int
    id: str
    file: str
    length: int
    trainable: int
    bytes: int
    sha256: str
    tokens_sha256: str

    def as_data(self) -> dict[str, Any]:
        """The record as plain data; ``from_data`` reads it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_data(cls, values: object) -> SampleRecord:
        """Read a record and check every field. ``FieldError`` names the field that is wrong.

        Other keys than the record's are ignored.
        """
        if not isinstance(values, dict):
            raise FieldError(f"is {values!r:.80}, wanted an object")
        record = cls(**{name: read_field(values, name, kind) for name, kind in _TYPES.items()})
        parts = record.file.split("/")
        # An absolute path begins with an empty part.
        if not parts[0] or ".." in parts or parts[-1] in ("", "."):
            raise FieldError(f"names {record.file!r}, a file outside the folder")
        if not parts[-1].endswith((TAKEN_BY_TRAINING, f".{SAFETENSORS}")):
            raise FieldError(f"names {record.file!r}, which training does not read")
        return record


_TYPES: dict[str, type] = typing.get_type_hints(SampleRecord)

"""Read the rows of a data file: JSON lines, one JSON array, or parquet. The content decides the format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from aerie_host.shared.refusal import Refusal, UsageRefusal
from aerie_host.shared.shard import WHOLE, Shard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LINES, ARRAY, PARQUET = "JSON lines", "JSON array", "parquet"
HEAD = 1 << 16
CHUNK = 1 << 20
# Longest element of an array, in characters; a longer one counts as broken.
LONGEST_ELEMENT = 1 << 28
PARQUET_ROWS = 512
# Files that are often given by mistake, by their first bytes.
NOT_DATA = {
    b"\x1f\x8b": "gzip: unpack it first",
    b"\x28\xb5\x2f\xfd": "zstd: unpack it first",
    b"\xfd7zXZ": "xz: unpack it first",
    b"BZh": "bzip2: unpack it first",
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"ARROW1": "an Arrow file: save it as parquet",
    b"\xff\xfe": "UTF-16: save it as UTF-8",
    b"\xfe\xff": "UTF-16: save it as UTF-8",
    b"version https://git-lfs": "a pointer of Git LFS: fetch the file itself (git lfs pull)",
}


DATA = "data"
REMEDY = "correct hidden_states_data_path"


def _broken(found: str) -> Refusal:
    """The refusal of a file that cannot be read on: where its next row begins is not known."""
    return Refusal(DATA, found, "a whole file", "mend the file, or make it again")


class Row(NamedTuple):
    """One row of the data.

    Attributes:
        place: its place in the data, from 0; blank lines do not count.
        number: its line or row number in the file, from 1.
        value: the parsed row; None where it cannot be parsed.
        problem: why it cannot be parsed.
    """

    place: int
    number: int
    value: Any
    problem: str = ""


class DataFile:
    """A data file in one of the three formats; ``UsageRefusal`` says what the file is when it has none of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.format = _recognise(path)
        # What the numbers of rows count.
        self.unit = "line" if self.format == LINES else "row"

    def read(self, shard: Shard = WHOLE) -> Iterator[Row]:
        """The rows of the shard in order, read piece by piece; ``Refusal`` when the rest cannot be read."""
        if self.format == LINES:
            return _lines(self.path, shard)
        return _array(self.path, shard) if self.format == ARRAY else _parquet(self.path, shard)


def _complete(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _recognise(path: Path) -> str:
    if path.is_dir():
        raise UsageRefusal(DATA, f"{path} is a folder", "one file of conversations", REMEDY)
    if not path.is_file():
        found = "no regular file (a pipe or a device)" if path.exists() else "not there"
        raise UsageRefusal(DATA, f"{path} is {found}", "one file of conversations", REMEDY)
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    if head.startswith(b"PAR1"):
        return PARQUET
    known = next((name for magic, name in NOT_DATA.items() if head.startswith(magic)), "")
    lines = [] if known else [line.strip() for line in head.decode("utf-8-sig", "replace").split("\n")]
    lines = [line for line in lines if line]
    if lines and lines[0].startswith("["):
        # A whole array on one line with lines after it is a row of JSON lines.
        alone = len(lines) == 1 or not isinstance(_complete(lines[0]), list)
        return ARRAY if alone else LINES
    if any(isinstance(_complete(line), dict) for line in lines):
        return LINES
    if len(lines) == 1 and len(head) == HEAD and lines[0].startswith("{"):
        # The first line is longer than the part that was read.
        return LINES
    if known:
        found = known
    elif not lines:
        found = "it is empty"
    elif lines[0].startswith("{"):
        found = f"it begins with {lines[0][:40]!r}, and no line of it is a whole JSON object"
    else:
        found = f"it begins with {lines[0][:40]!r}"
    text = f"{path} is neither JSON lines, a JSON array nor parquet: {found}"
    raise UsageRefusal(DATA, text, "one file of conversations", REMEDY)


def _lines(path: Path, shard: Shard) -> Iterator[Row]:
    index = 0
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            if not raw.strip():
                continue
            if shard.takes(index):
                yield _line(raw, index, number)
            index += 1


def _line(raw: bytes, index: int, number: int) -> Row:
    try:
        return Row(index, number, json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8")))
    except UnicodeDecodeError as error:
        return Row(index, number, None, f"no UTF-8 at byte {error.start}")
    except json.JSONDecodeError as error:
        return Row(index, number, None, f"broken JSON: {error.msg} at column {error.colno}")
    except ValueError as error:
        # A number with more digits than Python converts.
        return Row(index, number, None, f"JSON that cannot be read: {error}")
    except RecursionError:
        return Row(index, number, None, "JSON that is nested too deeply")


class _Unparsed:
    """The part of a stream that is read and not parsed yet."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.text = ""
        self.place = 0
        self.ended = False

    def more(self) -> None:
        """Read more; the piece doubles while an element does not fit."""
        left = self.text[self.place :]
        piece = self._stream.read(max(CHUNK, len(left)))
        self.text, self.place, self.ended = left + piece, 0, not piece

    def next(self) -> str:
        """The next character that is no white space, without taking it; empty at the end."""
        while True:
            while self.place < len(self.text) and self.text[self.place].isspace():
                self.place += 1
            if self.place < len(self.text) or self.ended:
                return self.text[self.place : self.place + 1]
            self.more()

    def value(self) -> Any:
        """Take one JSON value; ``json.JSONDecodeError`` when there is none."""
        decoder = json.JSONDecoder()
        while True:
            try:
                value, end = decoder.raw_decode(self.text, self.place)
            except json.JSONDecodeError:
                if self.ended or len(self.text) - self.place > LONGEST_ELEMENT:
                    raise
            else:
                # A number at the end of the read part may continue in the next.
                if end < len(self.text) or self.ended:
                    self.place = end
                    return value
            self.more()


def _array(path: Path, shard: Shard) -> Iterator[Row]:
    index = 0
    try:
        with path.open(encoding="utf-8-sig") as stream:
            text = _Unparsed(stream)
            text.next()
            text.place += 1
            while not (index == 0 and text.next() == "]"):
                text.next()
                value = text.value()
                if shard.takes(index):
                    yield Row(index, index + 1, value)
                index += 1
                mark = text.next()
                if mark == "]":
                    break
                if mark != ",":
                    raise _broken(f"{path}: a comma or ']' is missing after row {index}")
                text.place += 1
            text.place += 1
            if rest := text.next():
                raise _broken(f"{path}: {rest!r} follows the end of the array, after row {index}")
    except UnicodeDecodeError as error:
        raise _broken(f"{path}: no UTF-8 in or after row {index + 1}: {error.reason}") from error
    except json.JSONDecodeError as error:
        # Where a broken element ends is not known: the elements after it cannot be read.
        raise _broken(f"{path}: row {index + 1} of the array is broken JSON: {error.msg}") from error
    except ValueError as error:
        raise _broken(f"{path}: row {index + 1} of the array cannot be read: {error}") from error
    except RecursionError as error:
        raise _broken(f"{path}: row {index + 1} of the array is nested too deeply") from error


def without_nulls(value: Any) -> Any:
    """The value without keys that are null: parquet gives every row the keys that any row has."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def _parquet(path: Path, shard: Shard) -> Iterator[Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        found = f"{path} is parquet, and this environment has no pyarrow"
        raise UsageRefusal(DATA, found, "pyarrow", "provision the environment again (--tags provision)") from error
    index = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=PARQUET_ROWS):
                places = [place for place in range(batch.num_rows) if shard.takes(index + place)]
                taken = batch.take(pa.array(places, pa.int64())).to_pylist()
                for place, value in zip(places, taken, strict=True):
                    yield Row(index + place, index + place + 1, without_nulls(value))
                index += batch.num_rows
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _broken(f"{path} cannot be read as parquet after row {index}: {str(error).splitlines()[0]}") from error

"""``journal.jsonl``: one line for each finished sample, appended by several writers. It is what a run resumes from."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from aerie_host.folder.record import FieldError, SampleRecord
from aerie_host.shared.durable import sync_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def read(journal: Path) -> dict[int, SampleRecord]:
    """Records by the index of their sample; of several lines for one sample the last counts.

    A line that is no valid record is left out, as one that a crash cut off: its sample is extracted again.
    """
    records: dict[int, SampleRecord] = {}
    try:
        lines = journal.read_bytes().splitlines()
    except OSError:
        return records
    for line in lines:
        try:
            record = SampleRecord.from_data(json.loads(line))
        except (ValueError, RecursionError, FieldError):
            continue
        records[record.index] = record
    return records


def append(journal: Path, records: Sequence[SampleRecord]) -> None:
    """Add the records of finished samples. They are on disk when this returns.

    The files of the samples must be on disk before, and their names too.
    """
    text = "".join(json.dumps(record.as_data(), sort_keys=True) + "\n" for record in records)
    with journal.open("ab") as stream:
        is_new = not stream.tell()
        # A line that a crash cut off must not swallow the next one.
        if not is_new and not _ends_with_newline(journal):
            text = "\n" + text
        stream.write(text.encode())
        stream.flush()
        os.fsync(stream.fileno())
    if is_new:
        sync_folder(journal.parent)


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"

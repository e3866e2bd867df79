"""Whether the samples fit on the disk."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from aerie_host.extract import schedule
from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from aerie_host.data.samples import Sample
    from aerie_host.extract.job import ExtractionJob


def require_disk(job: ExtractionJob, samples: list[Sample], when: str, freed: int = 0) -> None:
    """``Refusal`` when the files of these samples, and the reserve, do not fit.

    Args:
        job: output, layers, hidden size and reserve.
        samples: those that are still to be written; none checks the reserve alone.
        when: the moment, for the message.
        freed: bytes that come free before the first of them is written.

    """
    needed = schedule.bytes_on_disk(samples, len(job.layers), job.facts.hidden_size)
    free = shutil.disk_usage(job.output).free
    if free + freed >= needed + job.disk_reserve:
        return
    what = f"{len(samples)} samples take {needed / 1e9:.2f} GB, " if samples else ""
    more = f", and {freed / 1e9:.2f} GB more without the samples that they replace" if freed else ""
    raise Refusal(
        "disk",
        f"{when}: {what}{free / 1e9:.2f} GB are free in {job.output}{more}",
        f"{(needed + job.disk_reserve) / 1e9:.2f} GB, of which {job.disk_reserve / 1e9:.2f} GB stay free",
        "make room and run again: what was finished stays, and the rest is done",
    )

"""How pieces are shared out among writers."""

from __future__ import annotations

import collections
import os

import pytest

from aerie_host.data.samples import Sample
from aerie_host.extract import writers
from aerie_host.extract.writer_process import Area, Piece
from aerie_host.extract.writers import Writers
from aerie_host.folder.layout import Folder

LAYERS, HIDDEN, LENGTH, AT_ONCE, SLABS = [1, 2], 256, 16, 400, 2
SLAB_BYTES = len(LAYERS) * AT_ONCE * LENGTH * HIDDEN * 2


@pytest.fixture
def area():
    memory = os.memfd_create("slabs")
    os.ftruncate(memory, SLABS * SLAB_BYTES)
    yield Area(f"/proc/{os.getpid()}/fd/{memory}", SLABS * SLAB_BYTES, SLABS, HIDDEN)
    os.close(memory)


def test_many_short_samples_go_to_all_writers_alike(tmp_path, area, monkeypatch):
    folder = Folder(tmp_path / "out")
    folder.create()
    shares = collections.Counter()
    choose = Writers._writer_for

    def counted(pool, index):
        writer = choose(pool, index)
        shares[writer.process.name] += 1
        return writer

    monkeypatch.setattr(Writers, "_writer_for", counted)
    pool = Writers(4, area, folder, LAYERS)
    done = []
    try:
        for step in range(4):
            slab = pool.free_slab()
            numbers = range(step * AT_ONCE, (step + 1) * AT_ONCE)
            begins = [slab * SLAB_BYTES + layer * SLAB_BYTES // len(LAYERS) for layer in range(len(LAYERS))]
            pool.give(
                Piece(
                    Sample(number, number + 1, "", [5] * LENGTH, [1] * LENGTH),
                    slab,
                    [begin + place * LENGTH * HIDDEN * 2 for begin in begins],
                    LENGTH,
                    0,
                )
                for place, number in enumerate(numbers)
            )
            done += pool.finished()
        done += pool.finished(wait=True)
    finally:
        pool.close()
    assert sorted(entry.index for entry in done) == list(range(4 * AT_ONCE))
    # More at once than all of them may have waiting, so that what is chosen depends on who is heard.
    assert AT_ONCE > 4 * writers.PIECES
    assert min(shares.values()) > 0.5 * 4 * AT_ONCE / 4, shares

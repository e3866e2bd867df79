# SPDX-License-Identifier: Apache-2.0
"""Shared memory that captured rows travel through, and the way back into tensors.

A slab holds what one step of the model captured. Workers fill slabs, others read them;
only where rows lie (``Rows``) is said over the executor's queue.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["SLABS", "Captured", "Gathered", "Rows", "Slabs"]

# The rows of three steps are not handed on yet when the fourth gets its slab; two are being read.
SLABS = 6


class Rows(NamedTuple):
    """Rows ``[begin, end)`` of ``slab`` hold a request's positions from ``position`` on."""

    request_id: str
    slab: int
    position: int
    begin: int
    end: int


@dataclass(frozen=True)
class Captured:
    """What a worker says of the steps whose rows are home."""

    rows: list[Rows]


class Slabs:
    """Memory ``[slab, layer, token, hidden]``; every process that gets a pickle of it maps the same bytes.

    The memory has no name (memfd): the kernel frees it when the last process that maps it
    ends, however it ends. ``/dev/shm`` and its size do not matter.

    Args:
        layer_ids: the layers asked for, in order; one asked twice is stored once.
        tokens: the most rows that one step has.
        hidden: values in a row.
        dtype: of the values.
        count: number of slabs.

    Raises:
        MemoryError: the machine has less memory left than the slabs take.
    """

    def __init__(
        self,
        layer_ids: Sequence[int],
        tokens: int,
        hidden: int,
        dtype: torch.dtype,
        count: int = SLABS,
    ) -> None:
        self.layers = sorted(set(layer_ids))
        self.tokens, self.hidden, self.dtype, self.count = tokens, hidden, dtype, count
        self.slots = [self.layers.index(layer) for layer in layer_ids]
        free = available_memory()
        if self.nbytes > free:
            raise MemoryError(
                f"captured states need {count} slabs of {self.slab_nbytes / 1e6:.0f} MB "
                f"({tokens} tokens a step, {len(self.layers)} layers, {hidden} values, {dtype}); "
                f"{free / 1e6:.0f} MB of memory are free: take fewer tokens in a step, or make room"
            )
        self._fd = os.memfd_create("captured-states")
        os.ftruncate(self._fd, self.nbytes)
        self.path = f"/proc/{os.getpid()}/fd/{self._fd}"
        self._area = mmap.mmap(self._fd, self.nbytes)

    @property
    def slab_nbytes(self) -> int:
        """Bytes of one slab."""
        return len(self.layers) * self.tokens * self.hidden * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all slabs."""
        return self.count * self.slab_nbytes

    def offset(self, slab: int, slot: int, row: int) -> int:
        """Byte at which a row begins; ``slot`` counts the layers stored."""
        return ((slab * len(self.layers) + slot) * self.tokens + row) * self.hidden * self.dtype.itemsize

    def offsets(self, slab: int, row: int) -> list[int]:
        """Bytes at which a row begins, one for each layer asked."""
        return [self.offset(slab, slot, row) for slot in self.slots]

    def rows(self, slab: int, slot: int, begin: int, end: int) -> torch.Tensor:
        """A tensor ``[end - begin, hidden]`` whose storage is these rows of the shared memory."""
        return torch.frombuffer(
            self._area,
            dtype=self.dtype,
            count=(end - begin) * self.hidden,
            offset=self.offset(slab, slot, begin),
        ).view(-1, self.hidden)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_area", "_fd")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        fd = os.open(self.path, os.O_RDWR)
        try:
            self._area = mmap.mmap(fd, self.nbytes)
        finally:
            os.close(fd)

    def __del__(self) -> None:
        # The mapping goes with the tensors that look into it.
        if "_fd" in vars(self):
            os.close(self._fd)


class Gathered:
    """The rows of some requests, copied out of the slabs into tensors of their own.

    Args:
        lengths: rows that each request has, by its id.
    """

    def __init__(self, slabs: Slabs, lengths: Mapping[str, int]) -> None:
        self._slabs = slabs
        self._lengths = lengths
        self._covered = dict.fromkeys(lengths, 0)
        self._states = {
            request_id: [torch.empty(length, slabs.hidden, dtype=slabs.dtype) for _ in slabs.layers]
            for request_id, length in lengths.items()
        }

    def add(self, captured: Captured) -> None:
        """Copy rows; those of a pre-empted request come again from its start.

        Raises:
            RuntimeError: positions are missing.
        """
        for request_id, slab, position, begin, end in captured.rows:
            if position > self._covered[request_id]:
                raise RuntimeError(
                    f"{request_id}: rows {self._covered[request_id]} to {position - 1} never passed the model"
                )
            after = self._covered[request_id] = position + end - begin
            for slot, state in enumerate(self._states[request_id]):
                state[position:after] = self._slabs.rows(slab, slot, begin, end)

    def states(self) -> dict[str, list[torch.Tensor]]:
        """Per request id one tensor ``[sequence, hidden]`` per layer asked.

        Raises:
            RuntimeError: a request has not all of its rows.
        """
        for request_id, length in self._lengths.items():
            if self._covered[request_id] != length:
                raise RuntimeError(f"{request_id}: {self._covered[request_id]} of {length} rows passed the model")
        return {request_id: [states[slot] for slot in self._slabs.slots] for request_id, states in self._states.items()}


def available_memory() -> int:
    """Bytes that can be taken without swapping: of the machine, or of this control group where less."""
    machine = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        if line.startswith("MemAvailable:")
    )
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        return min(machine, limit - used + int(stat["inactive_file"]) + int(stat["active_file"]))
    except (OSError, ValueError, KeyError):
        # No control group, or one without a limit ("max").
        return machine

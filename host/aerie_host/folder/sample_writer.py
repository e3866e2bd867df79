"""From the states of a sample to its file: complete under its final name, or not there."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import torch

from aerie_host.folder import journal, overwrite, safetensors_file
from aerie_host.folder.record import SampleRecord
from aerie_host.folder.sample_format import HIDDEN_STATES, INPUT_IDS, LOSS_MASK, SAFETENSORS
from aerie_host.report.outcome import JobError
from aerie_host.shared.durable import sync_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aerie_host.data.samples import Sample
    from aerie_host.folder.layout import Folder


class _Hashing:
    """A file that knows the digest and the length of what went through it."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.digest = hashlib.sha256()
        self.length = 0

    def write(self, data: bytes | memoryview) -> int:
        self.digest.update(data)
        self.length += len(data)
        return self.stream.write(data)

    def flush(self) -> None:
        self.stream.flush()


class _Written(NamedTuple):
    """A complete file that has not got its name yet."""

    stream: BinaryIO
    temporary: Path
    record: SampleRecord


def begin_writeback(stream: BinaryIO) -> None:
    """Have the disk begin with a file now, and not when ``commit`` waits for it: the next one is hashed meanwhile."""
    # Linux begins to write what is advised to be dropped, and does not drop what is not written. Only advice: a
    # filesystem may refuse it.
    with contextlib.suppress(OSError):
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class SampleWriter:
    """Writes files of samples in two steps: ``write`` each, then ``commit`` all of them to disk, names and journal."""

    def __init__(self, folder: Folder, layers: Sequence[int], hidden_size: int) -> None:
        self._folder = folder
        self._layers = layers
        self._hidden_size = hidden_size
        self._written: list[_Written] = []
        self._began = False

    @property
    def uncommitted(self) -> int:
        """Files written and not committed."""
        return len(self._written)

    @property
    def uncommitted_bytes(self) -> int:
        """Their size."""
        return sum(file.record.bytes for file in self._written)

    def write(self, sample: Sample, hidden_states: Sequence[torch.Tensor]) -> None:
        """Write one sample with, per layer asked, states ``[seq, hidden]`` bfloat16; ``JobError`` names a flaw.

        The tensors must be contiguous and own their storage's every byte: ``torch.save`` writes whole storages. They
        may change after this call.
        """
        self._check(sample, hidden_states)
        if not self._began:
            overwrite.begin(self._folder)
            self._began = True
        data = {
            INPUT_IDS: torch.tensor(sample.input_ids, dtype=torch.long),
            HIDDEN_STATES: list(hidden_states),
            LOSS_MASK: torch.tensor(sample.loss_mask, dtype=torch.long),
        }
        path = self._folder.sample(sample.index)
        temporary = self._folder.temporary / f"{path.stem}.partial"
        try:
            stream = temporary.open("wb")
            try:
                hashing = _Hashing(stream)
                if self._folder.file_format == SAFETENSORS:
                    safetensors_file.save(data, hashing, self._layers)
                else:
                    torch.save(data, hashing)
                stream.flush()
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            begin_writeback(stream)
        except (OSError, RuntimeError) as error:
            raise self._unwritable(path, error) from error
        record = SampleRecord(
            index=sample.index,
            line=sample.line,
            id=sample.id,
            file=path.name,
            length=len(sample.input_ids),
            trainable=sample.trainable,
            bytes=hashing.length,
            sha256=hashing.digest.hexdigest(),
            tokens_sha256=sample.digest,
        )
        self._written.append(_Written(stream, temporary, record))

    def commit(self) -> list[SampleRecord]:
        """Bring what was written to disk, give it its names, and add it to the journal."""
        records = []
        for stream, temporary, record in self._written:
            path = self._folder.path / record.file
            try:
                os.fsync(stream.fileno())
                size = os.fstat(stream.fileno()).st_size
                stream.close()
                if size != record.bytes:
                    raise JobError(f"{path} has {size} bytes on disk, {record.bytes} were written: look at the disk")
                temporary.replace(path)
            except OSError as error:
                raise self._unwritable(path, error) from error
            records.append(record)
        self._written.clear()
        if records:
            try:
                sync_folder(self._folder.path)
                journal.append(self._folder.journal, records)
            except OSError as error:
                raise self._unwritable(self._folder.journal, error) from error
        return records

    def discard(self) -> None:
        """Remove what was not committed."""
        for stream, temporary, _record in self._written:
            stream.close()
            temporary.unlink(missing_ok=True)
        self._written.clear()

    def _unwritable(self, path: Path, error: Exception) -> JobError:
        # torch.save wraps what the file's own write raises.
        cause = error
        while not isinstance(cause, OSError) and (cause.__cause__ or cause.__context__):
            cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
        reason = cause.strerror if isinstance(cause, OSError) else str(error).splitlines()[0]
        return JobError(f"{path} could not be written: {reason}. What was finished stays; running again continues")

    def _check(self, sample: Sample, hidden_states: Sequence[torch.Tensor]) -> None:
        if len(hidden_states) != len(self._layers):
            raise JobError(f"{sample}: {len(hidden_states)} layers came back, {len(self._layers)} were asked")
        wanted = (len(sample.input_ids), self._hidden_size)
        for layer, states in zip(self._layers, hidden_states, strict=True):
            where = f"{sample}, layer {layer}"
            if tuple(states.shape) != wanted:
                raise JobError(f"{where}: shape {tuple(states.shape)}, wanted {wanted}")
            if states.dtype != torch.bfloat16:
                raise JobError(f"{where}: {states.dtype}, wanted torch.bfloat16")
            # Infinity and NaN reach the extremes; one pass at the speed of memory, twenty times that of isfinite().
            if not bool(torch.isfinite(torch.stack(torch.aminmax(states))).all()):
                row = int((~torch.isfinite(states).all(dim=1)).nonzero()[0])
                raise JobError(f"{where}: not finite in row {row}: nothing was written")

"""Write the file of a sample: complete under its final name, or not there.

``aerie_host.shared.durable`` is not used: it takes a file's whole content, while the content here goes to the disk in
pieces and is hashed on the way, and many files share one wait for the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import torch

from aerie_host.folder import journal, overwrite, safetensors_file
from aerie_host.folder.record import SampleRecord
from aerie_host.folder.sample_format import HIDDEN_STATES, INPUT_IDS, LOSS_MASK, SAFETENSORS
from aerie_host.shared.durable import sync_folder
from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aerie_host.data.samples import Sample
    from aerie_host.folder.layout import Folder


SAMPLE_FILE = "sample file"


def _wrong_states(found: str, wanted: object) -> Refusal:
    """The refusal of hidden states; nothing was written of their sample."""
    return Refusal("hidden states", found, wanted, "check the patches (--tags verify)")


class _Hashing:
    """A file that counts and hashes the bytes that are written to it."""

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
    """A complete file under a temporary name."""

    stream: BinaryIO
    temporary: Path
    record: SampleRecord


def begin_writeback(stream: BinaryIO) -> None:
    """Start to write a file to disk now, so that ``commit`` waits less; the next file is hashed meanwhile."""
    # Linux starts to write pages that it is advised to drop. This is advice only: a filesystem may refuse it.
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
        """Size of the files that are written and not committed."""
        return sum(file.record.bytes for file in self._written)

    def write(self, sample: Sample, hidden_states: Sequence[torch.Tensor]) -> None:
        """Write one sample to a temporary file; ``Refusal`` when the states are wrong or the file cannot be written.

        ``hidden_states``: for each layer, in the requested order, a bfloat16 tensor ``[seq, hidden]``. The tensors must
        be contiguous and fill their storages: ``torch.save`` writes whole storages. They may change after this call.
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
        """Bring the written files to disk under their final names and add them to the journal; return their records."""
        records = []
        for stream, temporary, record in self._written:
            path = self._folder.path / record.file
            try:
                os.fsync(stream.fileno())
                size = os.fstat(stream.fileno()).st_size
                stream.close()
                if size != record.bytes:
                    raise Refusal(SAMPLE_FILE, f"{path} has {size} bytes on disk", record.bytes, "check the disk")
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
        """Remove the files that were written and not committed."""
        for stream, temporary, _record in self._written:
            stream.close()
            temporary.unlink(missing_ok=True)
        self._written.clear()

    def _unwritable(self, path: Path, error: Exception) -> Refusal:
        # torch.save wraps what the file's own write raises.
        cause = error
        while not isinstance(cause, OSError) and (cause.__cause__ or cause.__context__):
            cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
        reason = cause.strerror if isinstance(cause, OSError) else str(error).splitlines()[0]
        found = f"{path} could not be written: {reason}"
        return Refusal(SAMPLE_FILE, found, "", "mend the cause and run again: finished samples are kept")

    def _check(self, sample: Sample, hidden_states: Sequence[torch.Tensor]) -> None:
        if len(hidden_states) != len(self._layers):
            raise _wrong_states(f"{sample}: {len(hidden_states)} layers came back", len(self._layers))
        wanted = (len(sample.input_ids), self._hidden_size)
        for layer, states in zip(self._layers, hidden_states, strict=True):
            where = f"{sample}, layer {layer}"
            if tuple(states.shape) != wanted:
                raise _wrong_states(f"{where}: shape {tuple(states.shape)}", wanted)
            if states.dtype != torch.bfloat16:
                raise _wrong_states(f"{where}: {states.dtype}", torch.bfloat16)
            # Infinity and NaN reach the extremes; one pass at the speed of memory, twenty times that of isfinite().
            if not bool(torch.isfinite(torch.stack(torch.aminmax(states))).all()):
                position = int((~torch.isfinite(states).all(dim=1)).nonzero()[0])
                raise _wrong_states(f"{where}: not finite at position {position}", "finite numbers")

"""The folder of one extraction: names, lock, journal, and what lies in it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host.report.outcome import JobError
from aerie_host.shared.durable import read_json, sync_folder
from aerie_host.shared.hold import hold, hold_at_once, hold_within
from aerie_host.shared.processes import is_running

if TYPE_CHECKING:
    from collections.abc import Iterator

# The dataset of speculators takes every file, in sub-folders too, whose name ends in these letters.
TAKEN_BY_TRAINING = "pt"
PT, SAFETENSORS = "pt", "safetensors"
FORMATS = (PT, SAFETENSORS)
# How long a new job waits for the writers of a killed one: they end with the file that they are at.
WRITERS_SECONDS = 60.0
# And for whatever else was ended just now, or is about to see that it is alone.
ENDING_SECONDS = 20.0
SAMPLE_NAME = re.compile(r"data_(\d+)\.(?:pt|safetensors)")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One finished sample: the line of the journal and the item of the manifest."""

    index: int
    line: int
    id: str
    file: str
    length: int
    trainable: int
    bytes: int
    sha256: str
    tokens_sha256: str


def _is_folder(path: Path) -> bool:
    # A link to one is replaced as a file is.
    return path.is_dir() and not path.is_symlink()


class Folder:
    """Paths and bookkeeping of the folder at ``path``. No name of ours in it ends in ``pt`` but the samples'.

    ``file_format``: of its samples; empty takes what the folder was begun with.
    """

    def __init__(self, path: Path, file_format: str = "") -> None:
        self.path = path
        self.state = path / ".aerie"
        self.temporary = self.state / "tmp"
        self.lock_file = self.state / "lock"
        self.writers_lock = self.state / "writers.lock"
        self.fingerprint = self.state / "fingerprint.json"
        # See aerie_host.folder.overwrite.
        self.wanted = self.state / "wanted.json"
        self.replacing = self.state / "replacing.json"
        self.journal = self.state / "journal.jsonl"
        self.manifest = path / "manifest.json"
        self.file_format = file_format or self._format_there()

    def _format_there(self) -> str:
        """What the fingerprint says, or else that in the manifest (a large file); ``pt`` where neither does."""
        said = self.begun_with() or (read_json(self.manifest) or {}).get("fingerprint")
        found = said.get("files") if isinstance(said, dict) else None
        return str(found) if found in FORMATS else PT

    def begun_with(self) -> dict[str, Any] | None:
        """The fingerprint of the samples there, or of those that replace them; None when neither is known."""
        return read_json(self.replacing) or read_json(self.fingerprint)

    def sample(self, index: int) -> Path:
        """Path of the sample with this index."""
        return self.path / f"data_{index}.{self.file_format}"

    def create(self) -> None:
        """Have the folder and prove that it can be written; ``JobError`` says what is in the way."""
        if self.path.exists() and not self.path.is_dir():
            raise JobError(f"{self.path} is a file, wanted a folder for the samples")
        try:
            self.temporary.mkdir(parents=True, exist_ok=True)
            probe = self.temporary / "probe"
            probe.write_bytes(b"x")
            probe.unlink()
        except OSError as error:
            raise JobError(f"{self.path} cannot be written: {error.strerror}") from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one job; a second one is refused by name."""
        deadline = time.monotonic() + ENDING_SECONDS
        with self.lock_file.open("a+") as stream:
            while not hold_at_once(stream):
                stream.seek(0)
                holder = stream.read().strip()
                # What a killed job left has its lock too, and is ended by the start of the next.
                gone = holder.isdigit() and not is_running(int(holder))
                if not gone or time.monotonic() > deadline:
                    state = ", which is gone, but not what it started" if gone else ""
                    text = f"{self.path} is in use by another extraction (process {holder or 'unknown'}{state})"
                    raise JobError(text)
                time.sleep(0.05)
            stream.truncate(0)
            stream.write(str(os.getpid()))
            stream.flush()
            self._await_writers()
            yield

    @contextlib.contextmanager
    def being_written(self) -> Iterator[None]:
        """Held by every process that writes samples: one may outlive its killed driver by the file it is at."""
        with self.writers_lock.open("a") as stream:
            hold(stream, shared=True)
            yield

    def _await_writers(self) -> None:
        with self.writers_lock.open("a") as stream:
            if not hold_within(stream, WRITERS_SECONDS):
                raise JobError(f"{self.path}: writers of an earlier extraction are still at work")

    def takes(self, name: str) -> bool:
        """Whether a file of this name would be taken for a sample, by training or as what this folder holds."""
        return name.endswith((TAKEN_BY_TRAINING, f".{self.file_format}"))

    def training_files(self) -> list[Path]:
        """Every file under the folder that would be taken for a sample."""
        if not self.path.is_dir():
            return []
        return sorted(
            Path(root) / name for root, _folders, names in os.walk(self.path) for name in names if self.takes(name)
        )

    def foreign_files(self, indices: set[int] | None = None) -> list[str]:
        """Names that training would take but that are none of the samples with these indices.

        Without indices: none of what ``clear`` removes.
        """
        foreign = []
        for path in self.training_files():
            name = path.relative_to(self.path).as_posix()
            match = SAMPLE_NAME.fullmatch(name)
            ours = match and (indices is None or (int(match[1]) in indices and name == self.sample(int(match[1])).name))
            if not ours:
                foreign.append(name)
        return foreign

    def in_the_way(self, indices: set[int] | None = None) -> list[str]:
        """Names of samples with these indices (None: any) that folders have."""
        found = [(path.name, SAMPLE_NAME.fullmatch(path.name)) for path in self.path.glob("data_*") if _is_folder(path)]
        return sorted(name for name, match in found if match and (indices is None or int(match[1]) in indices))

    def drop_temporaries(self) -> list[str]:
        """Remove what an interrupted run left unfinished; return the names."""
        left = sorted(path.name for path in self.temporary.iterdir()) if self.temporary.is_dir() else []
        if left:
            shutil.rmtree(self.temporary)
        self.temporary.mkdir(parents=True, exist_ok=True)
        return left

    def samples(self) -> list[Path]:
        """Every sample there, of any format: what ``clear`` removes."""
        return [path for path in self.path.glob("data_*") if SAMPLE_NAME.fullmatch(path.name)]

    def clear(self) -> int:
        """Remove the samples, the manifest and the bookkeeping; anything else stays. Return how many samples went."""
        samples = self.samples()
        self.manifest.unlink(missing_ok=True)
        self.fingerprint.unlink(missing_ok=True)
        self.journal.unlink(missing_ok=True)
        for path in samples:
            path.unlink()
        return len(samples)

    def read_manifest(self) -> dict[str, Any] | None:
        """The manifest, None when there is none."""
        return read_json(self.manifest)

    def read_journal(self) -> dict[int, Entry]:
        """Finished samples by index, the last line of each; a line that a crash cut off proves nothing."""
        entries: dict[int, Entry] = {}
        try:
            lines = self.journal.read_bytes().splitlines()
        except OSError:
            return entries
        for line in lines:
            try:
                entry = Entry(**json.loads(line))
            except (ValueError, TypeError):
                continue
            entries[entry.index] = entry
        return entries

    def append(self, entries: list[Entry]) -> None:
        """Add finished samples to the journal; on return they and their files' names survive a power cut."""
        sync_folder(self.path)
        text = "".join(json.dumps(dataclasses.asdict(entry), sort_keys=True) + "\n" for entry in entries)
        with self.journal.open("ab") as stream:
            # A line that a crash cut off must not swallow the next one.
            if stream.tell() and not self._ends_with_newline():
                text = "\n" + text
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())

    def _ends_with_newline(self) -> bool:
        with self.journal.open("rb") as stream:
            stream.seek(-1, os.SEEK_END)
            return stream.read(1) == b"\n"

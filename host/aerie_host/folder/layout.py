"""The folder of one extraction: the names in it, and which of its files are samples."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from aerie_host.folder.sample_format import FORMATS, PT, TAKEN_BY_TRAINING
from aerie_host.shared.durable import read_json
from aerie_host.shared.refusal import Refusal

# The name of every check and refusal about the folder of an extraction.
OUTPUT = "output folder"
REMEDY = "correct hidden_states_output_path"
SAMPLE_NAME = re.compile(r"data_(\d+)\.(?:pt|safetensors)")


def _is_folder(path: Path) -> bool:
    # A link to a folder is replaced as a file is.
    return path.is_dir() and not path.is_symlink()


class Folder:
    """The paths of the folder at ``path``. Of the files that Aerie writes there, only samples have names in ``pt``.

    ``file_format``: format of the samples; when empty, the format that the folder was begun with.
    """

    def __init__(self, path: Path, file_format: str = "") -> None:
        self.path = path
        self.state = path / ".aerie"
        self.temporary = self.state / "tmp"
        self.lock_file = self.state / "lock"
        self.writers_lock = self.state / "writers.lock"
        self.fingerprint = self.state / "fingerprint.json"
        # The next two are explained in aerie_host.folder.overwrite.
        self.wanted = self.state / "wanted.json"
        self.replacing = self.state / "replacing.json"
        self.journal = self.state / "journal.jsonl"
        self.manifest = path / "manifest.json"
        self.file_format = file_format or self._format_there()

    def _format_there(self) -> str:
        """The format in the fingerprint, else that in the manifest (a large file), else ``pt``."""
        fingerprint = self.begun_with() or (read_json(self.manifest) or {}).get("fingerprint")
        file_format = fingerprint.get("files") if isinstance(fingerprint, dict) else None
        return str(file_format) if file_format in FORMATS else PT

    def begun_with(self) -> dict[str, Any] | None:
        """The fingerprint of the samples in the folder, or of those that replace them; None when neither is known."""
        return read_json(self.replacing) or read_json(self.fingerprint)

    def sample(self, index: int) -> Path:
        """Path of the sample with this index."""
        return self.path / f"data_{index}.{self.file_format}"

    def create(self) -> None:
        """Create the folder and prove that it can be written; ``Refusal`` names what prevents it."""
        if self.path.exists() and not self.path.is_dir():
            raise Refusal(OUTPUT, f"{self.path} is a file", "a folder for the samples", REMEDY)
        try:
            self.temporary.mkdir(parents=True, exist_ok=True)
            probe = self.temporary / "probe"
            probe.write_bytes(b"x")
            probe.unlink()
        except OSError as error:
            found = f"{self.path} cannot be written: {error.strerror}"
            raise Refusal(OUTPUT, found, "a folder that this user can write", REMEDY) from error

    def takes(self, name: str) -> bool:
        """Whether a file of this name counts as a sample: training reads it, or it is in the folder's own format."""
        return name.endswith((TAKEN_BY_TRAINING, f".{self.file_format}"))

    def training_files(self) -> list[Path]:
        """Every file under the folder that counts as a sample."""
        if not self.path.is_dir():
            return []
        return sorted(
            Path(root) / name for root, _folders, names in os.walk(self.path) for name in names if self.takes(name)
        )

    def foreign_files(self, indices: set[int] | None = None) -> list[str]:
        """Names of files that training would read and that are no samples with these indices.

        Without indices every file that ``clear`` removes counts as a sample.
        """
        foreign = []
        for path in self.training_files():
            name = path.relative_to(self.path).as_posix()
            match = SAMPLE_NAME.fullmatch(name)
            index = int(match[1]) if match else -1
            is_sample = match and (indices is None or (index in indices and name == self.sample(index).name))
            if not is_sample:
                foreign.append(name)
        return foreign

    def folders_named_as_samples(self, indices: set[int] | None = None) -> list[str]:
        """Names of sub-folders that have the name of a sample with one of these indices (None: with any)."""
        names = [path.name for path in self.path.glob("data_*") if _is_folder(path)]
        matches = filter(None, map(SAMPLE_NAME.fullmatch, names))
        return sorted(match[0] for match in matches if indices is None or int(match[1]) in indices)

    def drop_temporaries(self) -> list[str]:
        """Remove the unfinished files of an interrupted run; return their names."""
        names = sorted(path.name for path in self.temporary.iterdir()) if self.temporary.is_dir() else []
        if names:
            shutil.rmtree(self.temporary)
        self.temporary.mkdir(parents=True, exist_ok=True)
        return names

    def samples(self) -> list[Path]:
        """Every sample in the folder, of any format: the files that ``clear`` removes."""
        return [path for path in self.path.glob("data_*") if SAMPLE_NAME.fullmatch(path.name)]

    def clear(self) -> int:
        """Remove the samples, the manifest, the fingerprint and the journal; return how many samples were removed."""
        samples = self.samples()
        self.manifest.unlink(missing_ok=True)
        self.fingerprint.unlink(missing_ok=True)
        self.journal.unlink(missing_ok=True)
        for path in samples:
            path.unlink()
        return len(samples)

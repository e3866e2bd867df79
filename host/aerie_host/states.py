"""From the target model to the files: where states come from, and where they go."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Protocol

import torch

from aerie_host.files import sha256_bytes, sha256_file, write_durably
from aerie_host.folder import Entry, Folder
from aerie_host.outcome import JobError

if TYPE_CHECKING:
    from pathlib import Path

    from aerie_host.samples import Sample


class StatesSource(Protocol):
    """Extracts batches. The seam: one that lets the model's workers write the files themselves fits here as well."""

    def extract(self, batch: list[Sample]) -> list[Entry]:
        """Have the files of ``batch`` written and checked; return their entries, in any order."""

    def close(self) -> None:
        """Let go of the model."""


class SampleWriter:
    """Writes checked samples into the folder, each complete under its final name or not at all."""

    def __init__(self, folder: Folder, layers: list[int], hidden_size: int) -> None:
        self._folder = folder
        self._layers = layers
        self._hidden_size = hidden_size

    def write(self, sample: Sample, hidden_states: list[torch.Tensor]) -> Entry:
        """Write one sample with, per layer asked, states ``[seq, hidden]`` bfloat16; ``JobError`` names a flaw."""
        self._check(sample, hidden_states)
        data = {
            "input_ids": torch.tensor(sample.input_ids, dtype=torch.long),
            # torch.save writes the whole storage under a view: a row range of a batch would drag the batch along.
            "hidden_states": [states.detach().cpu().contiguous().clone() for states in hidden_states],
            "loss_mask": torch.tensor(sample.loss_mask, dtype=torch.long),
        }
        buffer = io.BytesIO()
        torch.save(data, buffer)
        content = buffer.getbuffer()
        digest = sha256_bytes(content)
        path = self._folder.sample(sample.index)
        self._put(path, content, digest)
        return Entry(
            index=sample.index,
            line=sample.line,
            id=sample.id,
            file=path.name,
            length=len(sample.input_ids),
            trainable=sample.trainable,
            bytes=len(content),
            sha256=digest,
            tokens_sha256=sample.digest,
        )

    def _check(self, sample: Sample, hidden_states: list[torch.Tensor]) -> None:
        if len(hidden_states) != len(self._layers):
            raise JobError(
                f"sample {sample.index}: {len(hidden_states)} layers came back, {len(self._layers)} were asked"
            )
        wanted = (len(sample.input_ids), self._hidden_size)
        for layer, states in zip(self._layers, hidden_states, strict=True):
            where = f"sample {sample.index} (line {sample.line}), layer {layer}"
            if tuple(states.shape) != wanted:
                raise JobError(f"{where}: shape {tuple(states.shape)}, wanted {wanted}")
            if states.dtype != torch.bfloat16:
                raise JobError(f"{where}: {states.dtype}, wanted torch.bfloat16")
            finite = torch.isfinite(states).all(dim=1)
            if not bool(finite.all()):
                raise JobError(f"{where}: not finite in row {int((~finite).nonzero()[0])}: nothing was written")

    def _put(self, path: Path, content: memoryview, digest: str) -> None:
        temporary = self._folder.temporary / f"{path.stem}.partial"
        try:
            write_durably(path, content, temporary)
        except OSError as error:
            text = f"{path} could not be written: {error.strerror}"
            raise JobError(f"{text}. What was finished stays; running again continues") from error
        if sha256_file(path) != digest:
            path.unlink()
            raise JobError(f"{path} reads back other than written: look at the disk")


class GeneratorSource:
    """Runs the patched generator of speculators and takes the states back into this process."""

    def __init__(self, generator: Any, writer: SampleWriter) -> None:
        self._generator = generator
        self._writer = writer

    def extract(self, batch: list[Sample]) -> list[Entry]:
        """See ``StatesSource``."""
        results = self._generator.generate([sample.input_ids for sample in batch])
        if len(results) != len(batch):
            raise JobError(f"{len(results)} results came back for {len(batch)} samples")
        entries = []
        for sample, result in zip(batch, results, strict=True):
            if result["input_ids"].tolist() != sample.input_ids:
                raise JobError(f"sample {sample.index} (line {sample.line}): the result carries other tokens")
            entries.append(self._writer.write(sample, result["hidden_states"]))
        return entries

    def close(self) -> None:
        """See ``StatesSource``."""
        executor = getattr(self._generator, "executor", None)
        if executor is not None:
            executor.shutdown()


def load_generator(
    model: Path, layers: list[int], max_length: int, options: dict[str, Any], trust_remote_code: bool
) -> Any:
    """Build the generator for samples of up to ``max_length`` tokens."""
    from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator

    VllmHiddenStatesGenerator.trust_remote_code = trust_remote_code
    # vLLM keeps one position for the token that it samples.
    return VllmHiddenStatesGenerator(model_path=str(model), layer_ids=layers, max_model_len=max_length + 1, **options)

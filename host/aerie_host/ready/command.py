"""``ready``: the training code of speculators reads the folder, and small draft models learn from it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host.folder import manifest as manifests
from aerie_host.folder.layout import OUTPUT, Folder
from aerie_host.folder.sample_format import PT
from aerie_host.ready.dataset import REMEDY, check_noise, read_batch, read_dataset
from aerie_host.ready.draft_model import train_drafts
from aerie_host.report.outcome import Outcome
from aerie_host.report.wording import several
from aerie_host.shared.checks import Checks
from aerie_host.shared.refusal import Refusal, UsageRefusal

if TYPE_CHECKING:
    import torch

    from aerie_host.folder.manifest import Manifest
    from aerie_host.spec import Spec

SECTION = "ready"
EXTRACT = "extract first (--tags extract)"
# Layers that the draft model of speculators 0.3.0 takes: three side by side, and the target model's last.
TARGET_LAYERS = 4


@dataclasses.dataclass(frozen=True)
class ReadyRequest:
    """Inputs of the command.

    Attributes:
        max_length: longest sample in tokens, and the length of a batch.
        dtype: name of the dtype in which training computes.
        samples: how many files are read.
        steps: training steps of each draft model; 0 trains none.
        draft_layers: decoder layers of the draft models, one number for each model.
        model: path of the target model; when empty, the manifest's.
    """

    max_length: int
    dtype: str
    samples: int
    steps: int
    draft_layers: list[int]
    model: str


def _read_request(spec: Spec) -> ReadyRequest:
    request = ReadyRequest(
        max_length=spec.number("max_length"),
        dtype=spec.text("dtype", "bfloat16"),
        samples=spec.number("samples", 64),
        steps=spec.number("steps", 2),
        draft_layers=spec.numbers("draft_layers", [1, 2, 3]),
        model=spec.text("model", ""),
    )
    spec.finish()
    if request.steps == 1 or any(number < 1 for number in request.draft_layers):
        found = f"{request.steps} steps, draft models with {request.draft_layers} layers"
        wanted = "at least 2 steps (or 0: none), and draft models of at least one layer"
        raise UsageRefusal("draft models", found, wanted, "correct train_ready_steps and train_ready_draft_layers")
    return request


def run(spec: Spec, check: bool) -> Outcome:
    """Read the folder as training does; reads only, so ``check`` changes nothing."""
    folder = Folder(Path(spec.text("output")))
    request = _read_request(spec)
    checks = Checks()
    if not folder.manifest.exists():
        if check:
            checks.add(manifests.NAME, "n/a", "none yet", "one: the extraction writes it")
            return Outcome(SECTION, checks, {}, False, f"would read {folder.path}")
        raise Refusal(manifests.NAME, f"{folder.manifest} is not there", manifests.WANTED, EXTRACT)
    manifest = manifests.read(folder.manifest)
    if folder.file_format != PT:
        return _other_format(folder)
    from speculators.train.data import split_files

    training, validation = split_files(str(folder.path), ratio=0.9, seed=0)
    files = sorted(str(path) for path in [*training, *validation])
    data: dict[str, Any] = {"output": str(folder.path), "files": len(files)}
    if not _check_files(checks, folder, files, manifest):
        # Other files make every further answer meaningless.
        return Outcome(SECTION, checks, data, False)
    parts = f"{len(training)} for training, {len(validation)} for validation"
    both = set(training) & set(validation)
    remedy = REMEDY if both else "extract more samples: training keeps one of ten for validation, and the only one too"
    checks.require("split", not both and bool(training), parts, "one for training at least, none in both", remedy)
    dataset = read_dataset(checks, files[: request.samples], request.max_length, _dtype(request.dtype))
    check_noise(checks, files[0], request.max_length)
    width = manifest.hidden_size * (len(manifest.layers) - 1)
    batch = read_batch(checks, dataset, request.max_length, width, manifest.hidden_size)
    data["read"] = min(request.samples, len(files))
    summary = f"{parts}; {data['read']} read"
    if reason := _reason_for_no_draft(request, manifest):
        checks.add("a draft model learns", "n/a", reason, "four layers")
    else:
        model = Path(request.model or manifest.model)
        data["drafts"] = train_drafts(checks, model, batch, request.draft_layers, request.steps)
        losses = " -> ".join(f"{loss:.2f}" for loss in data["drafts"][0]["losses"])
        summary += f"; loss of a small draft {losses}"
    return Outcome(SECTION, checks, data, False, summary)


def _check_files(checks: Checks, folder: Folder, files: list[str], manifest: Manifest) -> bool:
    """Whether training finds exactly the files of the manifest."""
    if not files:
        raise Refusal(OUTPUT, f"{folder.path}: training finds no file", "samples", EXTRACT)
    wanted = sorted(str(folder.path / record.file) for record in manifest.samples)
    different = [str(Path(name).relative_to(folder.path)) for name in sorted(set(files) ^ set(wanted))]
    text = f"{len(files)}" + (f"; missing there or here: {several(different)}" if different else "")
    name = "files that training finds"
    return checks.require(name, files == wanted, text, f"the manifest's {len(wanted)}", REMEDY)


def _reason_for_no_draft(request: ReadyRequest, manifest: Manifest) -> str:
    """Why no draft model is trained; empty when some are."""
    if not (request.steps and request.draft_layers):
        return "not requested"
    count = len(manifest.layers)
    if count != TARGET_LAYERS:
        return f"{count} layers: the draft model of speculators 0.3.0 takes three and the last"
    return ""


def _dtype(name: str) -> torch.dtype:
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        wanted = "a floating dtype of torch, for example bfloat16"
        raise Refusal("dtype in training", repr(name), wanted, "correct train_ready_dtype")
    return dtype


def _other_format(folder: Folder) -> Outcome:
    """The outcome for files in a format that training does not read: nothing can be said about them here."""
    checks = Checks()
    reader = "aerie_host.folder.sample_file.load"
    remedy = f"extract with hidden_states_format: pt, or read them with {reader} in your own dataset"
    wanted = "pt: the dataset of speculators reads no other"
    checks.add("files that training finds", "n/a", f"{folder.file_format} files", wanted, remedy)
    summary = f"the training of speculators does not read {folder.file_format}"
    return Outcome(SECTION, checks, {"output": str(folder.path)}, False, summary)

"""``ready``: the training code of speculators reads the folder, and a small draft model learns from it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host.folder.layout import PT, Folder
from aerie_host.folder.sample_file import load
from aerie_host.report.outcome import JobError, Outcome, UsageError
from aerie_host.report.wording import several
from aerie_host.shared.checks import Checks

if TYPE_CHECKING:
    import torch

    from aerie_host.spec import Spec

REMEDY = "judge the files (--tags extract): training reads them as they are"
# Small, so that one step takes seconds on a CPU: the shapes and the arithmetic are those of a real draft.
DRAFT_VOCABULARY = 512
STEP_TOKENS = 256


def _dtype(name: str) -> torch.dtype:
    import torch

    value = getattr(torch, name, None)
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise JobError(f"ready: {name!r} is no floating dtype of torch")
    return value


def _dataset(checks: Checks, files: list[str], max_length: int, dtype: torch.dtype) -> Any:
    """The dataset of speculators over ``files``; checks lengths, dtypes and the shift by one against the files."""
    import torch
    from speculators.train.data import Eagle3SampleFileDataset, standardize_data_v1
    from speculators.train.noise_transforms import AddUniformNoise

    dataset = Eagle3SampleFileDataset(
        max_len=max_length, file_list=files, hidden_states_dtype=dtype, standardize_fn=standardize_data_v1
    )
    wrong: dict[str, list[str]] = {"lengths": [], "shift": [], "dtype": [], "disk": []}
    for number, name in enumerate(files):
        raw, item = load(Path(name)), dataset[number]
        seq = len(raw["input_ids"])
        short = Path(name).name
        # shift_batch: token t+1 stands beside the states of token t and the verifier's of t+1.
        if int(item["lengths"][0]) != seq - 1 or any(len(item[key]) != seq - 1 for key in item if key != "lengths"):
            wrong["lengths"].append(f"{short}: {int(item['lengths'][0])} for {seq} tokens")
        inputs = torch.cat(raw["hidden_states"][:-1], dim=-1)[:-1].to(dtype)
        aligned = (
            torch.equal(item["input_ids"], raw["input_ids"][1:])
            and torch.equal(item["loss_mask"], raw["loss_mask"][1:])
            and torch.equal(item["hidden_states"], inputs)
            and torch.equal(item["verifier_last_hidden_states"], raw["hidden_states"][-1][1:].to(dtype))
        )
        if not aligned:
            wrong["shift"].append(short)
        if item["hidden_states"].dtype != dtype or item["verifier_last_hidden_states"].dtype != dtype:
            wrong["dtype"].append(f"{short}: {item['hidden_states'].dtype}")
        if any(states.dtype != torch.bfloat16 for states in raw["hidden_states"]):
            wrong["disk"].append(short)
    count = f"{len(files)} files"
    for name, key, wanted in (
        ("true lengths, less one", "lengths", count),
        ("tokens shifted by one against the states", "shift", count),
        ("dtype in training", "dtype", str(dtype)),
        ("dtype on disk", "disk", "torch.bfloat16"),
    ):
        checks.require(name, not wrong[key], "; ".join(wrong[key][:5]) or wanted, wanted, REMEDY)
    std = 0.05
    noisy = Eagle3SampleFileDataset(
        max_len=max_length, file_list=files[:1], transform=AddUniformNoise(std=std), hidden_states_dtype=torch.float32
    )[0]
    clean = torch.cat(load(Path(files[0]))["hidden_states"][:-1], dim=-1)[:-1].float()
    distance = (noisy["hidden_states"] - clean).abs()
    holds = 0 < float(distance.max()) <= std * (1 + 1e-3) + float(clean.abs().max()) * 2.0**-22
    checks.require(
        "uniform noise on the inputs", holds, f"at most {float(distance.max()):.4f}", f"above 0, at most {std}"
    )
    return dataset


def _batch(checks: Checks, dataset: Any, max_length: int, width: int, hidden_size: int) -> dict[str, torch.Tensor]:
    """One collated batch; checks its shapes."""
    from speculators.train.data import create_collate_fn

    items = [dataset[number] for number in range(min(4, len(dataset)))]
    batch: dict[str, torch.Tensor] = create_collate_fn(max_length)(items)
    wanted = {
        "input_ids": [1, max_length],
        "loss_mask": [1, max_length],
        "position_ids": [1, max_length],
        "hidden_states": [1, max_length, width],
        "verifier_last_hidden_states": [1, max_length, hidden_size],
    }
    found = {name: list(batch[name].shape) for name in wanted}
    checks.require("shapes of a batch", found == wanted, found, wanted, REMEDY)
    total = sum(int(item["lengths"][0]) for item in items)
    packed = int(batch["lengths"].sum())
    checks.require("tokens in a batch", packed == min(total, max_length), packed, min(total, max_length), REMEDY)
    return batch


def _draft(model: Path, tokens: torch.Tensor, layers: int) -> Any:
    """A draft model over the target's embedding and head, with a small vocabulary that covers ``tokens``."""
    import torch
    from speculators import SpeculatorsConfig, VerifierConfig
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig
    from transformers import AutoConfig
    from transformers.models.llama.configuration_llama import LlamaConfig

    target = AutoConfig.from_pretrained(model)
    target = getattr(target, "text_config", target)
    layer = LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=target.hidden_size,
        intermediate_size=2 * target.hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=target.num_attention_heads,
        num_key_value_heads=target.num_attention_heads,
        max_position_embeddings=4096,
    )
    layer._attn_implementation = "simple_flex_attention"  # noqa: SLF001 - as the training script of speculators does
    chosen = torch.zeros(target.vocab_size, dtype=torch.bool)
    chosen[tokens.unique()[:DRAFT_VOCABULARY]] = True
    spare = (~chosen).nonzero()[: DRAFT_VOCABULARY - int(chosen.sum()), 0]
    chosen[spare] = True
    kept = chosen.nonzero()[:, 0]
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=len(kept),
        norm_before_residual=False,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=1)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=str(model), architectures=list(target.architectures or [])),
        ),
    )
    return Eagle3DraftModel(config=config, t2d=chosen, d2t=kept - torch.arange(len(kept)))


def _learn(model: Path, batch: dict[str, torch.Tensor], layers: int, steps: int) -> dict[str, Any]:
    """Train a draft of ``layers`` decoder layers a few steps on one batch; its losses, and whether all is finite."""
    import torch

    torch.manual_seed(0)
    began = time.monotonic()
    draft = _draft(model, batch["input_ids"], layers)
    # Where training will run. On a CPU, FlexAttention has no backward from torch 2.11 on.
    device = "cuda" if torch.cuda.is_available() else "cpu"
    draft.to(device)
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    optimizer = torch.optim.AdamW([p for p in draft.parameters() if p.requires_grad], lr=1e-4)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        _, loss, _ = draft(**batch, ttt_steps=1)
        loss.backward()
        optimizer.step()
        losses.append(round(float(loss.detach()), 6))
    gradients = [p.grad for p in draft.parameters() if p.requires_grad and p.grad is not None]
    finite = all(map(math.isfinite, losses)) and all(bool(torch.isfinite(g).all()) for g in gradients)
    seconds = round(time.monotonic() - began, 1)
    found = {"layers": layers, "device": device, "losses": losses, "seconds": seconds}
    return {**found, "finite": finite and bool(gradients)}


def _drafts(
    checks: Checks, model: Path, batch: dict[str, torch.Tensor], layers: list[int], steps: int
) -> list[dict[str, Any]]:
    """One draft for each number of decoder layers: losses must be finite and fall."""
    import torch._dynamo

    # Compiling takes a compiler and minutes; the same operations run one by one here.
    torch._dynamo.config.disable = True  # noqa: SLF001
    small = {name: tensor[:, :STEP_TOKENS] for name, tensor in batch.items() if name != "lengths"}
    small = {name: t.float() if t.is_floating_point() else t for name, t in small.items()}
    ends = batch["lengths"].cumsum(0).clamp(max=small["input_ids"].shape[1])
    lengths = ends.diff(prepend=ends.new_zeros(1))
    small["lengths"] = lengths[lengths > 0]
    drafts = [_learn(model, small, number, steps) for number in layers]

    def said(wrong: list[dict[str, Any]]) -> str:
        return "; ".join(
            f"{one['layers']} draft layer{'s' * (one['layers'] > 1)}: {one['losses']}" for one in wrong or drafts
        )

    remedy = "look at the states' sizes, and at the draft model's configuration"
    broken = [one for one in drafts if not one["finite"]]
    checks.require("loss and gradients finite", not broken, said(broken), "finite", remedy)
    stuck = [one for one in drafts if not one["losses"][-1] < one["losses"][0]]
    checks.require("loss falls on one batch", not stuck, said(stuck), "the last below the first", remedy)
    return drafts


def _not_read(folder: Folder) -> Outcome:
    """Of files that training does not read nothing can be said here."""
    checks = Checks()
    reader = "aerie_host.folder.sample_file.load"
    remedy = f"extract with hidden_states_format: pt, or read them with {reader} in your own dataset"
    wanted = "pt: the dataset of speculators reads no other"
    checks.add("files that training finds", "n/a", f"{folder.file_format} files", wanted, remedy)
    summary = f"the training of speculators does not read {folder.file_format}"
    return Outcome("ready", checks, {"output": str(folder.path)}, False, summary)


def run(spec: Spec, check: bool) -> Outcome:
    """Read the folder as training does; reads only, so ``check`` changes nothing."""
    folder = Folder(Path(spec.text("output")))
    max_length = spec.number("max_length")
    dtype = spec.text("dtype", "bfloat16")
    samples, steps = spec.number("samples", 64), spec.number("steps", 2)
    draft_layers = spec.numbers("draft_layers", [1, 2, 3])
    model = spec.text("model", "")
    spec.finish()
    if steps == 1 or any(number < 1 for number in draft_layers):
        raise UsageError("ready: wanted at least 2 steps (or 0: none), and draft models of at least one layer")
    manifest = folder.read_manifest()
    checks = Checks()
    if manifest is None:
        if check:
            checks.add("manifest", "n/a", "none yet", "one: the extraction writes it")
            return Outcome("ready", checks, {}, False, f"would read {folder.path}")
        raise JobError(f"{folder.manifest} is not there or broken: extract first (--tags extract)")
    if folder.file_format != PT:
        return _not_read(folder)
    from speculators.train.data import split_files

    training, validation = split_files(str(folder.path), ratio=0.9, seed=0)
    files = sorted(str(path) for path in [*training, *validation])
    wanted = sorted(str(folder.path / item["file"]) for item in manifest["samples"])
    if not files:
        raise JobError(f"{folder.path}: training finds no file")
    data: dict[str, Any] = {"output": str(folder.path), "files": len(files)}
    odd = [str(Path(name).relative_to(folder.path)) for name in sorted(set(files) ^ set(wanted))]
    text = f"{len(files)}" + (f"; missing there or here: {several(odd)}" if odd else "")
    checks.require("files that training finds", files == wanted, text, f"the manifest's {len(wanted)}", REMEDY)
    if odd:
        # Whatever else training would say of them.
        return Outcome("ready", checks, data, False)
    parts = f"{len(training)} for training, {len(validation)} for validation"
    both = set(training) & set(validation)
    remedy = REMEDY if both else "extract more samples: training keeps one of ten for validation, and the only one too"
    wanted_parts = "one for training at least, none in both"
    checks.require("split", not both and bool(training), parts, wanted_parts, remedy)
    dataset = _dataset(checks, files[:samples], max_length, _dtype(dtype))
    hidden_size, layers = manifest["hidden_size"], len(manifest["layers"])
    batch = _batch(checks, dataset, max_length, hidden_size * (layers - 1), hidden_size)
    data["read"] = min(samples, len(files))
    summary = f"{parts}; {data['read']} read"
    if steps and draft_layers and layers == 4:
        data["drafts"] = _drafts(checks, Path(model or manifest["model"]["path"]), batch, draft_layers, steps)
        first = " -> ".join(f"{loss:.2f}" for loss in data["drafts"][0]["losses"])
        summary += f"; loss of a small draft {first}"
    else:
        reason = (
            "not asked"
            if not (steps and draft_layers)
            else f"{layers} layers: the draft model of speculators 0.3.0 takes three and the last"
        )
        checks.add("a draft model learns", "n/a", reason, "four layers")
    return Outcome("ready", checks, data, False, summary)

"""Read the samples through the dataset of speculators, and check what training gets against the files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host.folder.sample_file import load
from aerie_host.folder.sample_format import HIDDEN_STATES, INPUT_IDS, LOSS_MASK
from aerie_host.report.wording import several

if TYPE_CHECKING:
    import torch

    from aerie_host.shared.checks import Checks

REMEDY = "judge the files (--tags judge): training reads them as they are"
NOISE = 0.05
BATCH_SAMPLES = 4


def read_dataset(checks: Checks, files: list[str], max_length: int, dtype: torch.dtype) -> Any:
    """The dataset of speculators over ``files``; checks lengths, dtypes and the shift by one against the files."""
    from speculators.train.data import Eagle3SampleFileDataset, standardize_data_v1

    dataset = Eagle3SampleFileDataset(
        max_len=max_length, file_list=files, hidden_states_dtype=dtype, standardize_fn=standardize_data_v1
    )
    wrong: dict[str, list[str]] = {"lengths": [], "shift": [], "dtype": [], "disk": []}
    for number, name in enumerate(files):
        for kind, text in _flaws(load(Path(name)), dataset[number], dtype).items():
            wrong[kind].append(f"{Path(name).name}{text}")
    count = f"{len(files)} files"
    for name, kind, wanted in (
        ("true lengths, less one", "lengths", count),
        ("tokens shifted by one against the states", "shift", count),
        ("dtype in training", "dtype", str(dtype)),
        ("dtype on disk", "disk", "torch.bfloat16"),
    ):
        checks.require(name, not wrong[kind], several(wrong[kind]) or wanted, wanted, REMEDY)
    return dataset


def _flaws(sample: dict[str, Any], item: dict[str, Any], dtype: torch.dtype) -> dict[str, str]:
    """What is wrong with the dataset's item for a sample, by kind; the texts follow the file's name."""
    import torch

    flaws = {}
    ids, states = sample[INPUT_IDS], sample[HIDDEN_STATES]
    seq, length = len(ids), int(item["lengths"][0])
    if length != seq - 1 or any(len(item[key]) != seq - 1 for key in item if key != "lengths"):
        flaws["lengths"] = f": {length} for {seq} tokens"
    # shift_batch of speculators puts token t+1 beside the states of token t and the last layer's states of t+1.
    aligned = (
        torch.equal(item["input_ids"], ids[1:])
        and torch.equal(item["loss_mask"], sample[LOSS_MASK][1:])
        and torch.equal(item["hidden_states"], torch.cat(states[:-1], dim=-1)[:-1].to(dtype))
        and torch.equal(item["verifier_last_hidden_states"], states[-1][1:].to(dtype))
    )
    if not aligned:
        flaws["shift"] = ""
    if item["hidden_states"].dtype != dtype or item["verifier_last_hidden_states"].dtype != dtype:
        flaws["dtype"] = f": {item['hidden_states'].dtype}"
    if any(layer.dtype != torch.bfloat16 for layer in states):
        flaws["disk"] = ""
    return flaws


def check_noise(checks: Checks, file: str, max_length: int) -> None:
    """The noise that training adds to its inputs is there, and within its bound."""
    import torch
    from speculators.train.data import Eagle3SampleFileDataset
    from speculators.train.noise_transforms import AddUniformNoise

    noisy = Eagle3SampleFileDataset(
        max_len=max_length, file_list=[file], transform=AddUniformNoise(std=NOISE), hidden_states_dtype=torch.float32
    )[0]
    clean = torch.cat(load(Path(file))[HIDDEN_STATES][:-1], dim=-1)[:-1].float()
    largest = float((noisy["hidden_states"] - clean).abs().max())
    # The sum is rounded: by half a unit in the last of float32's 24 bits at most.
    holds = 0 < largest <= NOISE * (1 + 1e-3) + float(clean.abs().max()) * 2.0**-22
    checks.require("uniform noise on the inputs", holds, f"at most {largest:.4f}", f"above 0, at most {NOISE}")


def read_batch(checks: Checks, dataset: Any, max_length: int, width: int, hidden_size: int) -> dict[str, torch.Tensor]:
    """One batch as training collates it; checks its shapes."""
    from speculators.train.data import create_collate_fn

    items = [dataset[number] for number in range(min(BATCH_SAMPLES, len(dataset)))]
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

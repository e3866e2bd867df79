"""A folder of samples as an extraction leaves it, made of random numbers, and the means to damage it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aerie_host.judge import command as judge
from aerie_host.report.outcome import Outcome
from aerie_host.shared.digests import sha256_file, sha256_json
from aerie_host.spec import Spec

LAYERS = [0, 2, 4, 5]
HIDDEN = 16
VOCABULARY = 300


def sample(seed: int, length: int, layers: int = len(LAYERS), hidden: int = HIDDEN) -> dict[str, Any]:
    """One sample that keeps the contract."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.zeros(length, dtype=torch.long)
    mask[length // 2 :] = 1
    return {
        "input_ids": torch.randint(VOCABULARY, (length,), generator=generator),
        "hidden_states": [torch.randn(length, hidden, generator=generator).bfloat16() for _ in range(layers)],
        "loss_mask": mask,
    }


class MadeFolder:
    """Samples of the given lengths with their manifest."""

    def __init__(self, path: Path, lengths: list[int], hidden: int = HIDDEN) -> None:
        self.path = path
        self.hidden = hidden
        self.manifest = path / "manifest.json"
        path.mkdir()
        for index, length in enumerate(lengths):
            torch.save(sample(index, length, hidden=hidden), path / f"data_{index}.pt")
        self.write_manifest([self.entry(index) for index in range(len(lengths))])

    def entry(self, index: int) -> dict[str, Any]:
        """The manifest's item for a file that is sound."""
        path = self.path / f"data_{index}.pt"
        data = torch.load(path, weights_only=True)
        return {
            "index": index,
            "line": index + 1,
            "id": f"s{index}",
            "file": path.name,
            "length": len(data["input_ids"]),
            "trainable": int(data["loss_mask"].sum()),
            "bytes": path.stat().st_size,
            "sha256": sha256_file(path),
            "tokens_sha256": sha256_json([data["input_ids"].tolist(), data["loss_mask"].tolist()]),
        }

    def write_manifest(self, samples: list[dict[str, Any]], **changes: Any) -> None:
        """A manifest with these samples."""
        values = {"version": 1, "model": {"path": "/not/here", "digest": "d"}, "layers": LAYERS}
        values |= {"hidden_size": self.hidden, "skipped": [], "truncated": [], "samples": samples, **changes}
        self.manifest.write_text(json.dumps(values))

    def change_manifest(self, edit: Callable[[dict[str, Any]], Any]) -> None:
        """Edit the manifest's values."""
        values = json.loads(self.manifest.read_text())
        edit(values)
        self.manifest.write_text(json.dumps(values))

    def change(self, edit: Callable[[dict[str, Any]], Any], name: str = "data_1.pt", **entry: Any) -> None:
        """Edit one file, and let the manifest's size and digest agree with it: only the content is wrong."""
        path = self.path / name
        data = torch.load(path, weights_only=True)
        replaced = edit(data)
        torch.save(data if replaced is None else replaced, path)
        agree = {"bytes": path.stat().st_size, "sha256": sha256_file(path), **entry}
        self.change_manifest(lambda values: values["samples"][int(path.stem[5:])].update(agree))

    def judge(self, check: bool = False, **spec: Any) -> Outcome:
        """Judge it."""
        given = {"output": str(self.path), "vocab_size": VOCABULARY, **spec}
        return judge.run(Spec(given, "judge"), check)


def failures(outcome: Outcome) -> dict[str, str]:
    """What the failing checks found, by name."""
    return {check.name: check.found for check in outcome.checks.failed}


def statuses(outcome: Outcome) -> dict[str, str]:
    """Status of each check by name."""
    return {check["name"]: check["status"] for check in outcome.checks.as_list()}


def founds(outcome: Outcome) -> dict[str, str]:
    """What each check found, by name."""
    return {check["name"]: check["found"] for check in outcome.checks.as_list()}

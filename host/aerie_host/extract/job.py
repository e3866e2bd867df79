"""The inputs of one extraction, read and completed before anything is spent."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host.data.samples import ON_TOO_LONG
from aerie_host.folder import fingerprint
from aerie_host.folder.sample_format import FORMATS, PT
from aerie_host.shared import shard as shards
from aerie_host.shared.model_config import ModelFacts, choose_layers, read_facts

if TYPE_CHECKING:
    from aerie_host.shared.shard import Shard
    from aerie_host.spec import Spec

DTYPE = "bfloat16"
LEAST: dict[str, float] = {
    "max_length": 2,
    "token_budget": 1,
    "tensor_parallel_size": 1,
    **dict.fromkeys(("start_timeout", "batch_timeout"), 0.1),
    **dict.fromkeys(("max_samples", "max_skipped", "writers", "disk_reserve"), 0),
}


@dataclasses.dataclass(frozen=True)
class ExtractionJob:
    """What is extracted, from what, where to, and within which limits."""

    model: Path
    data: Path
    output: Path
    layers: list[int]
    facts: ModelFacts
    max_length: int
    max_samples: int
    shard: Shard
    on_too_long: str
    max_skipped: int
    token_budget: int
    writers: int
    tensor_parallel_size: int
    gpu_memory_utilization: float
    trust_remote_code: bool
    overwrite: bool
    file_format: str
    start_timeout: float
    batch_timeout: float
    disk_reserve: int
    progress: Path | None
    prometheus: Path | None
    identity: dict[str, Any]

    def fingerprint(self) -> dict[str, Any]:
        """Everything that decides what the files hold."""
        selection = {
            "max_length": self.max_length,
            "max_samples": self.max_samples,
            "on_too_long": self.on_too_long,
        }
        return {
            **fingerprint.make(self.model, self.data, self.layers, DTYPE, self.identity, selection),
            "shard": str(self.shard),
            "files": self.file_format,
        }


def _folder(spec: Spec, name: str) -> Path:
    path = Path(spec.text(name))
    if not path.is_absolute():
        raise spec.refusal(name, path, "an absolute path")
    return path


def read_job(spec: Spec) -> ExtractionJob:
    """The job that ``spec`` describes; ``UsageRefusal`` names what is missing or senseless."""
    model = _folder(spec, "model")
    facts = read_facts(model)
    progress, metrics = spec.text("progress", ""), spec.text("prometheus_file", "")
    job = ExtractionJob(
        model=model,
        data=_folder(spec, "data"),
        output=_folder(spec, "output"),
        layers=choose_layers(spec.numbers("layer_ids", []), facts),
        facts=facts,
        max_length=spec.number("max_length"),
        max_samples=spec.number("max_samples", 0),
        shard=shards.parse(spec.text("shard", str(shards.WHOLE))),
        on_too_long=spec.choice("on_too_long", ON_TOO_LONG, "error"),
        max_skipped=spec.number("max_skipped", 0),
        token_budget=spec.number("token_budget", 8192),
        writers=spec.number("writers", 0),
        tensor_parallel_size=spec.number("tensor_parallel_size", 1),
        gpu_memory_utilization=spec.real("gpu_memory_utilization", 0.9),
        trust_remote_code=spec.flag("trust_remote_code", False),
        overwrite=spec.flag("overwrite", False),
        file_format=spec.choice("file_format", FORMATS, PT),
        start_timeout=spec.real("start_timeout", 7200.0),
        batch_timeout=spec.real("batch_timeout", 1800.0),
        disk_reserve=spec.number("disk_reserve", 1 << 30),
        progress=Path(progress) if progress else None,
        prometheus=Path(metrics) if metrics else None,
        identity=spec.mapping("identity", {}),
    )
    spec.finish()
    for name, least in LEAST.items():
        if (value := getattr(job, name)) < least:
            raise spec.refusal(name, value, f"at least {least}")
    if job.prometheus and not (job.prometheus.is_absolute() and job.prometheus.suffix == ".prom"):
        raise spec.refusal("prometheus_file", Path(metrics), "an absolute path that ends in .prom")
    # The model's digest covers what lies in its folder: no resume would be of the same inputs.
    if job.output.resolve().is_relative_to(job.model.resolve()):
        raise spec.refusal("output", job.output, f"a folder outside that of the model, {job.model}")
    return job

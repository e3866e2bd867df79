"""What the caller of the judge requests, beside the folder itself."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from aerie_host.shared import shard as shards

if TYPE_CHECKING:
    from aerie_host.shared.shard import Shard
    from aerie_host.spec import Spec


@dataclasses.dataclass(frozen=True)
class JudgeRequest:
    """Inputs of the judge; an empty value or 0 means that the caller does not say.

    Attributes:
        layers: decoder layers in the requested order.
        hidden_size: numbers per token and layer.
        vocab_size: token ids are below this.
        data: path of the data file, to count its rows.
        max_samples: how many of the first rows of the data count; 0 for all.
        shard: the part of the data; None when the caller names none.
        model: path of the target model, to compare with.
        trust_remote_code: whether the model's folder may bring code of its own.
        reference_samples: how many files are compared with Transformers.
    """

    layers: list[int]
    hidden_size: int
    vocab_size: int
    data: str
    max_samples: int
    shard: Shard | None
    model: str
    trust_remote_code: bool
    reference_samples: int


def read_request(spec: Spec) -> JudgeRequest:
    """The request in the specification."""
    return JudgeRequest(
        layers=spec.numbers("layer_ids", []),
        hidden_size=spec.number("hidden_size", 0),
        vocab_size=spec.number("vocab_size", 0),
        data=spec.text("data", ""),
        max_samples=spec.number("max_samples", 0),
        shard=shards.parse(shard) if (shard := spec.text("shard", "")) else None,
        model=spec.text("model", ""),
        trust_remote_code=spec.flag("trust_remote_code", False),
        reference_samples=spec.number("reference_samples", 0),
    )

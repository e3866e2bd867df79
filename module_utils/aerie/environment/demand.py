"""What the inventory asks of an environment, and what a run found and did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Mapping

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.environment.comparison import Difference
    from ansible.module_utils.aerie.environment.vllm_wheel import Source


@dataclass
class Demand:
    """What the inventory asks for."""

    path: Path
    lock: str
    stack: str
    python: str
    home: Path
    uv: str
    vllm_distribution: str
    python_versions: str = ">=3.10"
    # How many earlier environments stay.
    keep: int = 2
    # Whether a renewed lock of the same stack may move torch and other core distributions.
    may_move: bool = False
    # Whether something at `path` that is not ours may be moved aside.
    replace: bool = False
    # Process variables for uv.
    variables: Mapping[str, str] = field(default_factory=dict)
    # Distributions that may be installed without being locked.
    allowed: list[str] = field(default_factory=list)
    # A folder of the host with everything to install, instead of the network.
    bundle: Path | None = None
    # Digest of the controller's uv, which a bundle's uv must have; empty where `uv` is the host's own.
    uv_sha256: str = ""
    # The source of the vLLM wheel, where the wheel cannot be found by the lock alone.
    wheel: Source | None = None


@dataclass
class Outcome:
    """What was found and done. `before` and `after` are versions by name."""

    changed: bool = False
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    why: list[Difference] = field(default_factory=list)
    environment: Path | None = None
    python: str = ""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    data: dict[str, Any] = field(default_factory=dict)

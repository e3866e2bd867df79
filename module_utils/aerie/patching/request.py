"""What a run is asked for, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.shared.checks import Checks

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.patching.series import Series

PRESENT, ABSENT, AUDITED = "present", "absent", "audited"


@dataclass
class Request:
    """What a run is asked for."""

    environment: Path
    series: list[Series]
    state: str = PRESENT
    restore: bool = False
    check_mode: bool = False
    lock_wait_s: float = 10.0


@dataclass
class Result:
    """What a run found and did. ``diffs`` has Ansible's form, ``drift`` is text for the reader."""

    changed: bool = False
    checks: Checks = field(default_factory=Checks)
    data: dict[str, Any] = field(default_factory=dict)
    diffs: list[dict[str, str]] = field(default_factory=list)
    drift: str = ""

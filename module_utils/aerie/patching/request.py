"""What a run is asked for, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Sequence

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.patching.series import Series
    from ansible.module_utils.aerie.shared.checks import Checks

PRESENT, ABSENT, AUDITED = "present", "absent", "audited"


@dataclass(frozen=True)
class Request:
    """What a run is asked for.

    Attributes:
        environment: the virtual environment, a link to it, or its site-packages.
        series: the series to apply, to audit or to take away.
        state: ``PRESENT``, ``ABSENT`` or ``AUDITED``.
        restore: whether drifted files may be overwritten.
        check_mode: whether nothing may be written.
        hold_wait_s: seconds to wait for another run on the same environment.

    """

    environment: Path
    series: Sequence[Series]
    state: str = PRESENT
    restore: bool = False
    check_mode: bool = False
    hold_wait_s: float = 10.0


@dataclass(frozen=True)
class Result:
    """What a run found and did. ``diffs`` has Ansible's form, ``drift`` is text for the reader."""

    changed: bool
    checks: Checks
    data: dict[str, Any]
    diffs: list[dict[str, str]] = field(default_factory=list)
    drift: str = ""

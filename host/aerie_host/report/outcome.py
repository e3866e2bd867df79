"""What a command gives back, and the two ways in which it can end early."""

from __future__ import annotations

import dataclasses
from typing import Any

from aerie_host.shared.checks import Checks, failure_message
from aerie_host.shared.refusal import Refusal, UsageRefusal

PASS, FAILED, COULD_NOT_RUN = 0, 1, 2


class JobError(Refusal):
    """The work was tried and did not succeed, in one text: exit 1. ``Refusal`` takes its place."""

    def __init__(self, text: str) -> None:
        super().__init__("", text)

    def __str__(self) -> str:
        return self.found


class UsageError(UsageRefusal):
    """The work could not be tried, in one text: exit 2. ``UsageRefusal`` takes its place."""

    def __init__(self, text: str) -> None:
        super().__init__("", text)

    def __str__(self) -> str:
        return self.found


@dataclasses.dataclass
class Outcome:
    """One section of the report, with whether anything on the host was changed."""

    section: str
    checks: Checks
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    changed: bool = False
    message: str = ""

    @property
    def failed(self) -> bool:
        """True when a check failed or none was made: a run that checked nothing proves nothing."""
        return bool(self.checks.failed) or not len(self.checks)

    def as_document(self) -> dict[str, Any]:
        """The JSON document that the calling Ansible module passes on."""
        if self.message and not self.failed:
            self.data.setdefault("summary", self.message)
        return {
            "failed": self.failed,
            "changed": self.changed,
            "msg": failure_message(self.checks) if self.failed else self.message,
            "aerie": {"section": self.section, "checks": self.checks.as_list(), "data": self.data},
        }

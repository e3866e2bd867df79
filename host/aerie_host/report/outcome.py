"""What a command returns, and its exit codes."""

from __future__ import annotations

import dataclasses
from typing import Any

from aerie_host.shared.checks import Checks, failure_message

# Exit codes of the host program.
PASS, FAILED, COULD_NOT_RUN = 0, 1, 2


@dataclasses.dataclass
class Outcome:
    """The result of one command.

    Attributes:
        section: name of the section in the report: the stage's.
        checks: the checks that were made.
        data: numbers and names for the report, as plain data.
        changed: whether anything on the host was changed.
        message: one line for the log when no check failed.
    """

    section: str
    checks: Checks
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    changed: bool = False
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether a check failed or none was made: a run that checked nothing proves nothing."""
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

"""A check: what was found, what was wanted, and what to do about the difference."""

from __future__ import annotations

import dataclasses
from typing import Any

STATUSES = ("pass", "fail", "warn", "n/a")


@dataclasses.dataclass(frozen=True)
class Check:
    """The answer to one question about a host, an environment or a file.

    Attributes:
        name: what was looked at; the same for the same question in every run.
        status: one of ``STATUSES``; anything else raises ``ValueError``, so a misspelled status never reads as a pass.
        found: what is there.
        wanted: what should be there.
        remedy: what to do; empty where nothing is to be done.
        file: the file that it is about, if it is about one.
        line: the line in that file, from 1.
        seconds: how long the check took.

    """

    name: str
    status: str
    found: str
    wanted: str
    remedy: str = ""
    file: str | None = None
    line: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"check {self.name}: status {self.status!r} is none of {', '.join(STATUSES)}")

    def as_data(self) -> dict[str, Any]:
        """The check as the report has it; what is not known is left out."""
        data: dict[str, Any] = {
            "name": self.name,
            "status": self.status,
            "found": self.found,
            "wanted": self.wanted,
            "remedy": self.remedy,
        }
        optional = {"file": self.file, "line": self.line, "seconds": self.seconds}
        data.update({name: value for name, value in optional.items() if value is not None})
        return data

    def as_text(self) -> str:
        """The check in one line."""
        text = f"{self.name}: found {self.found}, wanted {self.wanted}"
        return text + (f". Remedy: {self.remedy}" if self.remedy else "")


class Checks:
    """A list of checks that grows while a stage runs."""

    def __init__(self) -> None:
        self._checks: list[Check] = []

    def __len__(self) -> int:
        return len(self._checks)

    def add(
        self,
        name: str,
        status: str,
        found: object,
        wanted: object,
        remedy: str = "",
        file: str | None = None,
        line: int | None = None,
        seconds: float | None = None,
    ) -> Check:
        """Record one check and return it; see ``Check`` for the arguments."""
        rounded = None if seconds is None else round(seconds, 3)
        check = Check(name, status, str(found), str(wanted), remedy, file, line, rounded)
        self._checks.append(check)
        return check

    def append(self, check: Check) -> None:
        """Record a check that was made elsewhere."""
        self._checks.append(check)

    def require(
        self,
        name: str,
        holds: bool,
        found: object,
        wanted: object,
        remedy: str = "",
        file: str | None = None,
        line: int | None = None,
        seconds: float | None = None,
    ) -> bool:
        """Record a check that passes when ``holds`` and fails otherwise; return ``holds``."""
        self.add(name, "pass" if holds else "fail", found, wanted, remedy, file, line, seconds)
        return holds

    @property
    def failed(self) -> list[Check]:
        """The checks with status ``fail``, in the order they were made."""
        return [check for check in self._checks if check.status == "fail"]

    def as_list(self) -> list[dict[str, Any]]:
        """All checks, in the order they were made, as the report has them."""
        return [check.as_data() for check in self._checks]


def failure_message(checks: Checks) -> str:
    """One line that says how many checks failed, and the first of them."""
    if not len(checks):
        return "no check was run: a run that checked nothing proves nothing"
    if not checks.failed:
        return f"0 of {len(checks)} checks failed"
    return f"{len(checks.failed)} of {len(checks)} checks failed: {checks.failed[0].as_text()}"

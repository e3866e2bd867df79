"""The growing list of named checks: the twin of ``module_utils/aerie/checks.py`` on the host's side."""

from __future__ import annotations

from typing import Any

STATUSES = ("pass", "fail", "warn", "n/a")


class Checks:
    """Named checks, each with what was found and what was wanted."""

    def __init__(self) -> None:
        self._checks: list[dict[str, Any]] = []

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
    ) -> dict[str, Any]:
        """Record one check and return its entry; an unknown ``status`` raises ``ValueError``."""
        if status not in STATUSES:
            raise ValueError(f"check {name}: status {status!r} is none of {', '.join(STATUSES)}")
        entry: dict[str, Any] = {
            "name": name,
            "status": status,
            "found": str(found),
            "wanted": str(wanted),
            "remedy": remedy,
        }
        if file is not None:
            entry["file"] = file
        if line is not None:
            entry["line"] = line
        if seconds is not None:
            entry["seconds"] = round(seconds, 3)
        self._checks.append(entry)
        return entry

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
    def failed(self) -> list[dict[str, Any]]:
        """The checks with status ``fail``, in the order they were made."""
        return [check for check in self._checks if check["status"] == "fail"]

    def as_list(self) -> list[dict[str, Any]]:
        """All checks, in the order they were made, as plain data."""
        return [dict(check) for check in self._checks]


def failure_message(checks: Checks) -> str:
    """One line that says how many checks failed and what to do about the first."""
    if not len(checks):
        return "no check was run: a run that checked nothing proves nothing"
    if not checks.failed:
        return f"0 of {len(checks)} checks failed"
    first = checks.failed[0]
    text = (
        f"{len(checks.failed)} of {len(checks)} checks failed: {first['name']}: "
        f"found {first['found']}, wanted {first['wanted']}"
    )
    return text + (f". Remedy: {first['remedy']}" if first["remedy"] else "")

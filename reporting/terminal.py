"""A report as lines for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.shared.progress import duration
from reporting import verdict

if TYPE_CHECKING:
    from collections.abc import Iterable


def render(report: dict[str, Any], path: object) -> list[str]:
    """The verdict as lines for a terminal, short enough to be read in ten seconds."""
    counts = report["counts"]
    changed = "would change (check mode)" if report["command"].get("check") else "changed"
    lines = [
        "AERIE VERDICT: {}   {} checks, {} failed, {} warned; {} {}; {}".format(
            report["verdict"].upper(), counts["checks"], counts["failed"], counts["warned"], counts["changed"],
            changed, duration(report["seconds"]),
        )
    ]  # fmt: skip
    if not report["hosts"]:
        lines.append("  no host was touched")
    lines += [f"  {text}" for text in str(report.get("error", "")).splitlines()]
    for name, host in report["hosts"].items():
        lines.append("  {}: {}{}".format(name, host["verdict"], ", unreachable" if host["unreachable"] else ""))
        lines += ["    " + line for line in _host_lines(host)]
    lines.append(f"  report: {path}")
    return lines


def _host_lines(host: dict[str, Any]) -> Iterable[str]:
    for section, text in _summaries(host["sections"]):
        yield f"{section:<12} {text}"
    checks = verdict.checks_of(host)
    failed = [check for check in checks if check.get("status") == "fail"]
    warned = [check for check in checks if check.get("status") == "warn"]
    for word, group in (("FAILED", failed), ("warning", warned)):
        for check in group:
            yield "{} {}{}: found {}, wanted {}".format(
                word, check.get("name"), _place(check), check.get("found"), check.get("wanted")
            )
            if check.get("remedy"):
                yield "  remedy: {}".format(check["remedy"])
    if not failed:
        # Failing checks say more than the task that made them.
        for failure in host["failures"]:
            yield "FAILED {}: {}".format(failure["task"], failure["message"])
    if verdict.proves_nothing(host) and not host["failures"] and not host["unreachable"]:
        yield "nothing was checked: that proves nothing"
        for check in checks:
            yield "  {} does not apply: {}".format(check.get("name"), check.get("found"))


def _place(check: dict[str, Any]) -> str:
    if not check.get("file"):
        return ""
    return " ({}{})".format(check["file"], ":{}".format(check["line"]) if check.get("line") else "")


def _summaries(sections: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """One line per section: its own `summary` where it gives one, and how many checks it ran."""
    for name, section in sections.items():
        checks = section["checks"]
        failed = sum(check.get("status") == "fail" for check in checks)
        if name == verdict.USAGE_SECTION and not failed:
            continue
        text = "{} checks{}".format(len(checks), f", {failed} failed" if failed else "")
        summary = verdict.summary_of(name, section["data"])
        yield name, f"{summary} ({text})" if summary else text

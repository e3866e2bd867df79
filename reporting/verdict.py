"""The verdict of a run: what the report holds, how it is judged, how a person reads it. Plain data throughout."""

from __future__ import annotations

import datetime as dt
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.shared.progress import duration

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA = 2
PASS, FAIL, COULD_NOT_RUN = "pass", "fail", "could not run"
EXIT_CODES = {PASS: 0, FAIL: 1, COULD_NOT_RUN: 2}
# A failing check in this section means that the run was asked for something that does not exist.
USAGE_SECTION = "inventory"


def new_host() -> dict[str, Any]:
    """The record of a host of which nothing is known yet."""
    return {"verdict": "", "changed": 0, "unreachable": False, "failures": [], "tasks": [], "sections": {}}


def add_sections(host: dict[str, Any], aerie: Any) -> None:
    """Add what one result says under its key `aerie`: one section or a list of them.

    A check that is made again (same name and place) replaces its earlier answer: counts are of checks, not of runs.
    """
    for section in aerie if isinstance(aerie, list) else [aerie]:
        if not isinstance(section, dict) or "section" not in section:
            continue
        kept = host["sections"].setdefault(str(section["section"]), {"checks": [], "data": {}})
        for check in section.get("checks") or []:
            same = [i for i, old in enumerate(kept["checks"]) if _identity(old) == _identity(check)]
            if same:
                kept["checks"][same[0]] = check
            else:
                kept["checks"].append(check)
        kept["data"].update(section.get("data") or {})


def add_task(host: dict[str, Any], name: str, seconds: float, changed: bool, sections: Any = ()) -> None:
    """Add how long a task took on a host, and which sections its result brought."""
    names = [str(one.get("section")) for one in (sections if isinstance(sections, list) else [sections]) if one]
    host["tasks"].append({"name": name, "seconds": round(seconds, 3), "changed": changed, "sections": names})


def _identity(check: dict[str, Any]) -> tuple[Any, ...]:
    return check.get("name"), check.get("file"), check.get("line")


def checks_of(host: dict[str, Any]) -> list[dict[str, Any]]:
    """The checks of a host, in the order of its sections.

    That the request was fit to run counts only where it was not: a run that did nothing else has checked nothing.
    """
    return [
        check
        for name, section in host["sections"].items()
        for check in section["checks"]
        if name != USAGE_SECTION or check.get("status") == "fail"
    ]


def asked_for(hosts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The hosts to judge, as the section of the request names them: not one that only lent it its name.

    One on which nothing was run is added. Where that section is not there, or refused, they are the given ones.
    """
    requests = [host["sections"].get(USAGE_SECTION, {}).get("data", {}) for host in hosts.values()]
    asked = [name for data in requests for name in data.get("hosts") or []]
    if not asked:
        return hosts
    kept = {
        name: host
        for name, host in hosts.items()
        if name in asked or host["failures"] or host["unreachable"] or set(host["sections"]) - {USAGE_SECTION}
    }
    return {**kept, **{name: new_host() for name in asked if name not in kept}}


def proves_nothing(host: dict[str, Any]) -> bool:
    """Whether no check of a host applied: it has none, or each is "n/a"."""
    return all(check.get("status") == "n/a" for check in checks_of(host))


def judge_host(host: dict[str, Any]) -> str:
    """The verdict of one host: a failure weighs more than not having been reached; no check that applies is no pass."""
    usage = host["sections"].get(USAGE_SECTION, {"checks": []})["checks"]
    if any(check.get("status") == "fail" for check in usage):
        return COULD_NOT_RUN
    if any(check.get("status") == "fail" for check in checks_of(host)):
        return FAIL
    if host["unreachable"]:
        return COULD_NOT_RUN
    if host["failures"]:
        return FAIL
    return COULD_NOT_RUN if proves_nothing(host) else PASS


def build(
    hosts: dict[str, dict[str, Any]], run: str, started: float, finished: float, command: dict[str, Any]
) -> dict[str, Any]:
    """The whole report; `started` and `finished` in seconds since the epoch."""
    for host in hosts.values():
        host["verdict"] = judge_host(host)
        for name, section in host["sections"].items():
            if summary := summary_of(name, section["data"]):
                section["data"]["summary"] = summary
    verdicts = {host["verdict"] for host in hosts.values()}
    verdict = FAIL if FAIL in verdicts else COULD_NOT_RUN if COULD_NOT_RUN in verdicts or not hosts else PASS
    checks = [check for host in hosts.values() for check in checks_of(host)]
    return {
        "schema": SCHEMA,
        "verdict": verdict,
        "run": run,
        "started": _utc(started),
        "finished": _utc(finished),
        "seconds": round(finished - started, 1),
        "command": command,
        "counts": {
            "checks": len(checks),
            "failed": sum(check.get("status") == "fail" for check in checks),
            "warned": sum(check.get("status") == "warn" for check in checks),
            "changed": sum(host["changed"] for host in hosts.values()),
        },
        "hosts": hosts,
    }


def _utc(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def run_name(started: float, pid: int) -> str:
    """Name of a run: UTC time and process id, so that names sort by time and two runs of one second differ."""
    return "{}-{}".format(_utc(started).replace("-", "").replace(":", ""), pid)


def write(report: dict[str, Any], reports: Path) -> Path:
    """Write `<reports>/<run>/report.json` and point `<reports>/latest` at the run, each complete or not at all."""
    folder = reports / str(report["run"])
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "report.json"
    handle, name = tempfile.mkstemp(dir=str(folder), prefix=".report-")
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        json.dump(report, stream, indent=1, default=str)
        stream.write("\n")
    Path(name).chmod(0o644)
    Path(name).replace(target)
    link = reports / ".latest-{}".format(report["run"])
    if link.is_symlink():
        link.unlink()
    link.symlink_to(str(report["run"]))
    link.replace(reports / "latest")
    return target


def render(report: dict[str, Any], path: object) -> list[str]:
    """The verdict as lines that a person reads in ten seconds."""
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
    checks = checks_of(host)
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
        # The failing checks say it better than the task that held them.
        for failure in host["failures"]:
            yield "FAILED {}: {}".format(failure["task"], failure["message"])
    if proves_nothing(host) and not host["failures"] and not host["unreachable"]:
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
        if name == USAGE_SECTION and not failed:
            continue
        text = "{} checks{}".format(len(checks), f", {failed} failed" if failed else "")
        summary = summary_of(name, section["data"])
        yield name, f"{summary} ({text})" if summary else text


def summary_of(section: str, data: dict[str, Any]) -> str:
    """What a section achieved, in a few words: its `summary`, else what its well-known keys say."""
    if data.get("summary"):
        return str(data["summary"])
    parts = []
    if section == "patch" and data.get("patches"):
        states: dict[str, int] = {}
        for patch in data["patches"]:
            state = str(patch.get("state"))
            states[state] = states.get(state, 0) + 1
        parts.append("patches " + ", ".join(f"{n} {state}" for state, n in sorted(states.items())))
    if isinstance(data.get("samples"), int):
        parts.append("{:,} samples".format(data["samples"]))
    if isinstance(data.get("tokens"), int):
        parts.append("{:,} tokens".format(data["tokens"]))
    if isinstance(data.get("tokens_per_s"), (int, float)):
        parts.append("{:,.0f} tokens/s".format(data["tokens_per_s"]))
    if isinstance(data.get("largest_difference"), (int, float)):
        parts.append("largest difference from the reference {:.2%}".format(data["largest_difference"]))
    return ", ".join(parts)

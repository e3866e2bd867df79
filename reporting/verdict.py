"""The verdict of a run: the form of the report and how it is judged. A report is plain data, as JSON has it."""

from __future__ import annotations

import datetime as dt
from typing import Any

SCHEMA = 2
PASS, FAIL, COULD_NOT_RUN = "pass", "fail", "could not run"
EXIT_CODES = {PASS: 0, FAIL: 1, COULD_NOT_RUN: 2}
# The section of the check of inventory and request. A failing check in it means that the run could not be started.
USAGE_SECTION = "inventory"


def new_host() -> dict[str, Any]:
    """The record of a host of which nothing is known yet."""
    return {"verdict": "", "changed": 0, "unreachable": False, "failures": [], "tasks": [], "sections": {}}


def add_sections(host: dict[str, Any], aerie: Any) -> None:
    """Add the sections of one result to the record of its host.

    ``aerie`` is the value of the result's key `aerie`: one section or a list of them. A check that is made again (same
    name and place) replaces its earlier answer, so that a check counts once.
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
    listed = sections if isinstance(sections, list) else [sections]
    names = [str(section.get("section")) for section in listed if section]
    host["tasks"].append({"name": name, "seconds": round(seconds, 3), "changed": changed, "sections": names})


def _identity(check: dict[str, Any]) -> tuple[Any, ...]:
    return check.get("name"), check.get("file"), check.get("line")


def checks_of(host: dict[str, Any]) -> list[dict[str, Any]]:
    """The checks of a host, in the order of its sections.

    Of the check of the request only failures count: a run that did nothing else has checked nothing.
    """
    return [
        check
        for name, section in host["sections"].items()
        for check in section["checks"]
        if name != USAGE_SECTION or check.get("status") == "fail"
    ]


def requested_hosts(hosts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The hosts to judge: those that the request names, and others on which something was checked or failed.

    A host that only ran a task of the controller is left out. A requested host on which nothing ran is added. Without a
    request, or with one that was refused, all hosts are judged.
    """
    requests = [host["sections"].get(USAGE_SECTION, {}).get("data", {}) for host in hosts.values()]
    requested = [name for data in requests for name in data.get("hosts") or []]
    if not requested:
        return hosts
    kept = {
        name: host
        for name, host in hosts.items()
        if name in requested or host["failures"] or host["unreachable"] or set(host["sections"]) - {USAGE_SECTION}
    }
    return {**kept, **{name: new_host() for name in requested if name not in kept}}


def proves_nothing(host: dict[str, Any]) -> bool:
    """Whether a host has no check that applied: it has none at all, or each is "n/a"."""
    return all(check.get("status") == "n/a" for check in checks_of(host))


def judge_host(host: dict[str, Any]) -> str:
    """The verdict of one host.

    A failed check outweighs that the host was not reached. A host without a check that applied "could not run".
    """
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
    """The whole report; `started` and `finished` in seconds since the epoch. Sets the verdicts of the hosts."""
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
        "started": utc(started),
        "finished": utc(finished),
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


def utc(seconds: float) -> str:
    """Seconds since the epoch as 2026-01-31T23:59:59Z."""
    return dt.datetime.fromtimestamp(seconds, dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def summary_of(section: str, data: dict[str, Any]) -> str:
    """What a section achieved, in a few words: its `summary`, otherwise its well-known keys."""
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

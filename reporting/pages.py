"""Writes ``report.html`` and ``junit.xml`` beside a ``report.json``."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from ansible.module_utils.aerie.shared import progress
from ansible.module_utils.aerie.shared.durable import write_durably
from reporting import junit, plots, schema1
from reporting.folder import MODE
from reporting.verdict import USAGE_SECTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from markupsafe import Markup

HERE = Path(__file__).resolve().parent
# The stages in the order in which they run, and what each is about.
STAGES = {
    "inventory": "the request",
    "gates": "is the host fit",
    "provision": "pinned environment",
    "patch": "patch series",
    "audit": "proof without imports",
    "imports": "proof by imports",
    "truth": "equality with Transformers",
    "extract": "hidden states",
    "judge": "the files that were written",
    "ready": "what training reads",
}
STATUS_ORDER = {"fail": 0, "warn": 1, "pass": 2, "n/a": 3}
FACTS = ("stack", "python", "device", "model", "output")
SLOWEST = 12
LEGEND = [("one", "median row"), ("two", "worst row"), ("bound", "bound")]


def status_of(checks: list[dict[str, Any]]) -> str:
    """The worst status of a list of checks; "n/a" when there is nothing else."""
    return min((str(check["status"]) for check in checks), key=lambda one: STATUS_ORDER.get(one, 0), default="n/a")


def view(report: dict[str, Any]) -> dict[str, Any]:
    """What the template shows: the report with sections in the ladder's order, counts and plots."""
    hosts = []
    for name, host in report["hosts"].items():
        order = [*[one for one in STAGES if one in host["sections"]]]
        order += [one for one in host["sections"] if one not in STAGES]
        sections = [_section(one, host["sections"][one], host.get("tasks") or []) for one in order]
        sections = [one for one in sections if one["name"] != USAGE_SECTION or one["status"] == "fail"]
        hosts.append({**host, "name": name, "sections": sections, **_host(host, sections)})
    # Hosts with trouble first: they are what a reader came for.
    hosts.sort(key=lambda host: not host["trouble"])
    return {**report, "hosts": hosts, "headline": _headline(report, hosts)}


def _headline(report: dict[str, Any], hosts: list[dict[str, Any]]) -> str:
    """The verdict in one sentence."""
    checks, failed, warned = (report["counts"][key] for key in ("checks", "failed", "warned"))
    unreachable = ", ".join(host["name"] for host in hosts if host["unreachable"])
    away = f"not reached: {unreachable}" if unreachable else ""
    if failed:
        rungs = {one["name"] for host in hosts for one in host["sections"] if one["counts"]["fail"]}
        names = ", ".join(one for one in [*STAGES, *sorted(rungs - set(STAGES))] if one in rungs)
        where = ", ".join(host["name"] for host in hosts if host["failed"])
        return f"{failed} of {checks:,} checks failed, in {names} on {where}" + (f"; {away}" if away else "")
    if away:
        return away
    broken = [f"{one['task']} on {host['name']}" for host in hosts for one in host["failures"]]
    if broken:
        return f"a task failed: {', '.join(broken)}"
    idle_hosts = [host["name"] for host in hosts if host["verdict"] == "could not run"]
    if idle_hosts or not checks:
        where = f" on {', '.join(idle_hosts)}" if len(hosts) > len(idle_hosts) else ""
        return f"nothing was checked{where}, and that proves nothing"
    idle = sum(section["counts"]["n/a"] for host in hosts for section in host["sections"])
    told = f"all {checks - idle:,} checks that apply passed" if idle else f"all {checks:,} checks passed"
    told += f", {warned} of them with a warning" if warned else ""
    return told + (f"; {idle:,} not applicable" if idle else "")


def _section(name: str, section: dict[str, Any], tasks: list[dict[str, Any]]) -> dict[str, Any]:
    checks = sorted(section["checks"], key=lambda check: STATUS_ORDER.get(str(check["status"]), 0))
    longest = max([float(check.get("seconds") or 0) for check in checks], default=0.0)
    counts = {status: sum(check["status"] == status for check in checks) for status in STATUS_ORDER}
    # A task that brings several sections counts for the first of them.
    seconds = sum(float(task["seconds"]) for task in tasks if task["sections"][:1] == [name])
    return {
        "name": name, "says": STAGES.get(name, ""), "status": status_of(checks), "checks": checks, "counts": counts,
        "longest": longest, "summary": section["data"].get("summary", ""), "seconds": seconds,
        "warnings": section["data"].get("warnings") or [], "log": str(section["data"].get("log") or ""),
        "data": section["data"],
    }  # fmt: skip


def _host(host: dict[str, Any], sections: list[dict[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for one in sections:
        data.update({key: value for key, value in one["data"].items() if key in FACTS and value})
    versions: dict[str, str] = next((one["data"]["versions"] for one in sections if one["data"].get("versions")), {})
    patches: dict[str, dict[str, Any]] = {}
    for one in sections:
        patches.update({f"{p.get('series')}/{p['id']}": p for p in one["data"].get("patches") or []})
    failed = [
        {**check, "section": one["name"]} for one in sections for check in one["checks"] if check["status"] == "fail"
    ]
    # Ansible's own tasks before each role carry the role's whole description in their names.
    tasks = [{**one, "name": one["name"].split(" against arg spec")[0]} for one in host.get("tasks") or []]
    timed = sorted(tasks, key=lambda one: -float(one["seconds"]))
    return {
        "facts": {key: _plain(value) for key, value in data.items()}, "versions": versions,
        "patches": list(patches.values()), "failed": failed, "todo": _todo(failed),
        "trouble": bool(failed or host["failures"] or host["unreachable"]),
        "slowest": [one for one in timed[:SLOWEST] if one["seconds"]], "quick": timed[SLOWEST:],
        "figures": _figures(host["sections"]), "numbers": _numbers(host["sections"]),
    }  # fmt: skip


def _plain(value: Any) -> str:
    """A fact in one line: of a mapping its name or its path."""
    if isinstance(value, dict):
        return str(value.get("name") or value.get("path") or value)
    return str(value)


def _todo(failed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The failing checks by remedy: one cause often fails many checks, and one act mends them all."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for check in failed:
        groups.setdefault(str(check.get("remedy") or ""), []).append(check)
    # Those that name a place first: where one file is wrong, all patches of it are said to be.
    return [
        {"remedy": remedy, "checks": sorted(checks, key=lambda check: not check.get("file"))}
        for remedy, checks in groups.items()
    ]


def _figures(sections: dict[str, Any]) -> list[dict[str, Any]]:
    """The plots for which the report has numbers. A section that gives them wrongly loses the plot, not the page."""
    judged = sections.get("judge", {}).get("data", {})
    lengths = judged.get("lengths") or {}
    points = sections.get("extract", {}).get("data", {}).get("throughput") or []
    wanted: list[tuple[str, str, object, Callable[[], Markup]]] = [
        (
            "Norm and spread per layer",
            "mean norm of a row, and the spread of that norm",
            judged.get("statistics"),
            lambda: plots.norms(judged["statistics"]),
        ),
        (
            "Samples by length",
            "tokens per sample",
            lengths.get("counts"),
            lambda: plots.histogram(lengths["edges"], lengths["counts"]),
        ),
        (
            "Throughput over time",
            "prompt tokens per second while extracting",
            points,
            lambda: plots.throughput(points),
        ),
    ]
    figures = [_figure(title, says, draw, []) for title, says, there, draw in wanted if there]
    differences = [
        _figure(title, "relative norm of the difference", functools.partial(plots.differences, layers), legend)
        for title, layers, legend in _references(sections)
    ]
    return [*figures[:1], *differences, *figures[1:]]


def _references(sections: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]], list[tuple[str, str]]]]:
    """Title, numbers per layer and legend of every comparison with Transformers."""
    reference = sections.get("judge", {}).get("data", {}).get("reference") or {}
    if reference.get("layers"):
        yield "Difference from the reference per layer", reference["layers"], LEGEND
    for one in sections.get("truth", {}).get("data", {}).get("reports") or []:
        if one.get("layers"):
            more = f", tensor parallel {one['tensor_parallel_size']}" if one.get("tensor_parallel_size", 1) != 1 else ""
            more += ", small cache" if one.get("small_cache") else ""
            yield f"Truth, {one.get('architecture')}{more}: difference per layer", one["layers"], LEGEND[1:]


def _figure(title: str, says: str, draw: Callable[[], Markup], legend: list[tuple[str, str]]) -> dict[str, Any]:
    try:
        return {"title": title, "says": says, "svg": draw(), "legend": legend}
    except (LookupError, TypeError, ValueError) as error:
        return {"title": title, "says": f"cannot be drawn: {type(error).__name__}: {error}", "svg": "", "legend": []}


def _numbers(sections: dict[str, Any]) -> list[tuple[str, str]]:
    """The few numbers that a reader looks for first."""
    extracted = sections.get("extract", {}).get("data", {})
    judged = sections.get("judge", {}).get("data", {})
    found = []
    for label, value, form in (
        ("samples", judged.get("samples", extracted.get("samples")), "{:,}"),
        ("tokens", judged.get("tokens", extracted.get("tokens")), "{:,}"),
        ("tokens/s", extracted.get("tokens_per_s"), "{:,.0f}"),
        ("largest median difference", judged.get("largest_difference"), "{:.2%}"),
    ):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append((label, form.format(value)))
    return found


def duration(seconds: object) -> str:
    """Seconds as people write them, with milliseconds and tenths for short ones; empty for what is no number."""
    if not isinstance(seconds, (int, float)):
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else progress.duration(seconds)


def html(report: dict[str, Any]) -> str:
    """The page: one file, no network, no script."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["duration"] = duration
    return environment.get_template("report.html.j2").render(view(report))


def write(report: dict[str, Any], folder: Path) -> list[Path]:
    """Write both pages, each as a whole or not at all; return their paths."""
    contents = {"junit.xml": junit.build(report), "report.html": html(report).encode(errors="replace")}
    for name, content in contents.items():
        write_durably(folder / name, content, mode=MODE)
    return [folder / name for name in contents]


def try_write(report: dict[str, Any], folder: Path) -> str:
    """Write both pages; return why not, or "". The report itself is written before: its pages never end a run."""
    try:
        write(report, folder)
    except Exception as error:  # noqa: BLE001  (whatever it is, the verdict stands)
        return f"no pages of this report: {type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":  # python -m reporting.pages var/reports/latest/report.json: the pages of an earlier run
    arguments = argparse.ArgumentParser(prog="python -m reporting.pages", description=__doc__)
    arguments.add_argument("report", type=Path, help="a report.json; its pages are written beside it")
    source = arguments.parse_args().report
    try:
        print(*write(schema1.current(json.loads(source.read_text(encoding="utf-8"))), source.parent), sep="\n")
    except (OSError, ValueError) as error:
        sys.exit(f"{source}: {error}")

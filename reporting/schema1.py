"""Read reports of schema 1, in which five sections were not named after their stages."""

from __future__ import annotations

from typing import Any

from reporting.verdict import SCHEMA

# Name of a section in schema 1, and its name since.
RENAMED = {
    "environment": "provision",
    "patches": "patch",
    "extraction": "extract",
    "tensors": "judge",
    "readiness": "ready",
}


def current(report: dict[str, Any]) -> dict[str, Any]:
    """The same report in today's schema."""
    if report.get("schema") != 1:
        return report
    hosts = {name: _renamed(host) for name, host in report["hosts"].items()}
    return {**report, "schema": SCHEMA, "hosts": hosts}


def _renamed(host: dict[str, Any]) -> dict[str, Any]:
    sections = {RENAMED.get(name, name): section for name, section in host["sections"].items()}
    tasks = [
        {**task, "sections": [RENAMED.get(name, name) for name in task["sections"]]} for task in host.get("tasks") or []
    ]
    return {**host, "sections": sections, "tasks": tasks}

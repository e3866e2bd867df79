"""A report as JUnit XML, the form that CI systems show: one suite per host and section, one case per check."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

# What XML 1.0 does not allow at all; terminals and libraries write such characters.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: object) -> str:
    """Text that XML can hold."""
    return FORBIDDEN.sub("�", str(text))


def build(report: dict[str, Any]) -> bytes:
    """The whole document."""
    root = ET.Element("testsuites", name="aerie", time=str(report["seconds"]))
    for name, host in report["hosts"].items():
        for section, content in host["sections"].items():
            _suite(root, report, name, section, content["checks"])
        _troubles(root, report, name, host)
    if not report["hosts"]:
        suite = _new_suite(root, report, "aerie", "localhost")
        suite.set("tests", "1")
        suite.set("errors", "1")
        case = ET.SubElement(suite, "testcase", classname="aerie", name="run")
        ET.SubElement(case, "error", message=clean(report.get("error") or "no host was touched"))
    for total in ("tests", "failures", "errors", "skipped"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _new_suite(root: ET.Element, report: dict[str, Any], name: str, host: str) -> ET.Element:
    """A suite whose counts are all 0: readers differ in which of them they can do without."""
    suite = ET.SubElement(root, "testsuite", name=clean(name), hostname=clean(host), time="0.000")
    # A time zone is not what these readers expect; the report's times are UTC.
    suite.set("timestamp", report["started"].rstrip("Z"))
    for total in ("tests", "failures", "errors", "skipped"):
        suite.set(total, "0")
    return suite


def _suite(root: ET.Element, report: dict[str, Any], host: str, section: str, checks: list[dict[str, Any]]) -> None:
    suite = _new_suite(root, report, f"{host}.{section}", host)
    seconds = 0.0
    for check in checks:
        spent = float(check.get("seconds") or 0)
        seconds += spent
        case = ET.SubElement(
            suite, "testcase", classname=clean(f"{host}.{section}"), name=clean(check["name"]), time=f"{spent:.3f}"
        )
        if check.get("file"):
            case.set("file", clean(check["file"]))
        if check.get("line"):
            case.set("line", str(check["line"]))
        _outcome(case, check)
    suite.set("tests", str(len(checks)))
    for total, status in (("failures", "fail"), ("skipped", "n/a")):
        suite.set(total, str(sum(check["status"] == status for check in checks)))
    suite.set("time", f"{seconds:.3f}")


def _outcome(case: ET.Element, check: dict[str, Any]) -> None:
    found, wanted = clean(check["found"]), clean(check["wanted"])
    if check["status"] == "fail":
        failure = ET.SubElement(case, "failure", message=f"found {found}, wanted {wanted}", type="check")
        failure.text = f"found:  {found}\nwanted: {wanted}\nremedy: {clean(check.get('remedy', ''))}"
    elif check["status"] == "n/a":
        ET.SubElement(case, "skipped", message=found)
    elif check["status"] == "warn":
        ET.SubElement(
            case, "system-out"
        ).text = f"warning: found {found}, wanted {wanted}; {clean(check.get('remedy', ''))}"


def _troubles(root: ET.Element, report: dict[str, Any], name: str, host: dict[str, Any]) -> None:
    """What went wrong beside the checks: a host that was not reached, a task that failed without a check."""
    checked = any(check["status"] == "fail" for one in host["sections"].values() for check in one["checks"])
    troubles = [] if checked else list(host["failures"])
    if host["unreachable"] and not troubles:
        troubles = [{"task": "connect", "message": "unreachable"}]
    if host["verdict"] == "could not run" and not checked and not troubles:
        troubles = [{"task": "run", "message": "nothing was checked: that proves nothing"}]
    if not troubles:
        return
    suite = _new_suite(root, report, f"{name}.tasks", name)
    for total in ("tests", "errors"):
        suite.set(total, str(len(troubles)))
    for one in troubles:
        case = ET.SubElement(suite, "testcase", classname=clean(f"{name}.tasks"), name=clean(one["task"]))
        ET.SubElement(case, "error", message=clean(one["message"]).split("\n")[0]).text = clean(one["message"])

"""The pages of a report: complete, self-contained, safe against what a report may hold."""

from __future__ import annotations

import copy
import datetime as dt
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reporting import junit, pages, plots, schema1

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "schema/report.schema.json").read_text())


def check(name: str, status: str = "pass", **more: Any) -> dict[str, Any]:
    return {"name": name, "status": status, "found": f"found {name}", "wanted": "w", "remedy": "", **more}


def report(**sections: Any) -> dict[str, Any]:
    host: dict[str, Any] = {"verdict": "pass", "changed": 0, "unreachable": False, "failures": [], "sections": sections}
    host["tasks"] = [
        {"name": f"role : Do {name}", "seconds": 1.5 + number, "changed": False, "sections": [name]}
        for number, name in enumerate(sections)
    ]
    return {
        "schema": 2, "verdict": "pass", "run": "20260101T000000Z-1", "started": "2026-01-01T00:00:00Z",
        "finished": "2026-01-01T00:01:00Z", "seconds": 60.0, "command": {"playbook": "site.yml", "tags": ["verify"]},
        "counts": {"checks": 1, "failed": 0, "warned": 0, "changed": 0}, "hosts": {"local": host},
    }  # fmt: skip


FULL = report(
    gates={"checks": [check("disk", seconds=0.01), check("driver", "n/a")], "data": {}},
    audit={
        "checks": [check("call of X", "fail", file="speculators/x.py", line=7, remedy="apply the series")],
        "data": {
            "stack": "small", "versions": {"torch": "2.10.0"}, "seconds": {"files": 0.2, "contracts": 0.3},
            "patches": [{"id": "0001-a", "series": "s", "state": "applied", "title": "A title", "faults": [1, "5b"]}],
        },
    },
    imports={
        "checks": [check("import a:b", "warn", seconds=1.5, remedy="look")],
        "data": {
            "warnings": [{"category": "UserWarning", "message": "old <name>", "file": "a.py", "line": 3}],
            "log": "INFO: \x1b[31mred\x1b[0m & more",
        },
    },
    extract={
        "checks": [check("all written")],
        "data": {"tokens_per_s": 412.3, "throughput": [{"seconds": s, "tokens_per_s": 400 + s} for s in range(5)]},
    },
    judge={
        "checks": [check("layer 2")],
        "data": {
            "samples": 64, "tokens": 18432, "largest_difference": 0.0091,
            "statistics": [{"layer": 2, "norm": 20.5, "spread": 3.0}, {"layer": 29, "norm": 250.0, "spread": 40.0}],
            "reference": {"layers": [{"layer": 2, "median": 0.004, "worst": 0.012, "bound": 0.02}]},
            "lengths": {"edges": [0, 32, 64], "counts": [3, 7]},
        },
    },
)  # fmt: skip


def test_the_example_itself_keeps_the_schema() -> None:
    jsonschema.validate(FULL, SCHEMA)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict",), "ok"),
        (("counts", "failed"), -1),
        (("hosts", "local", "sections", "gates", "checks", 0, "status"), "passed"),
        (("hosts", "local", "sections", "gates", "checks", 0, "foundd"), "x"),
        (("hosts", "local", "sections", "gates", "checks", 0, "found"), 7),
        (("hosts", "local", "unreachable"), "no"),
        (("started",), "yesterday"),
    ],
)
def test_the_schema_refuses_what_readers_could_not_read(path: tuple[Any, ...], value: object) -> None:
    broken: Any = copy.deepcopy(FULL)
    at = broken
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCHEMA)


def test_the_page_holds_everything_and_needs_nothing() -> None:
    page = pages.html(FULL)
    for text in (
        "call of X", "speculators/x.py:7", "apply the series", "0001-a", "A title", "1, 5b", "applied",
        "2.10.0", "18,432", "412", "0.91%", "UserWarning", "old &lt;name&gt;", "Norm and spread per layer",
        "Throughput over time", "Samples by length", "Difference from the reference per layer",
        "prefers-color-scheme: dark",
    ):  # fmt: skip
        assert text in page, text
    assert page.count("<svg") == 4
    assert not re.search(r"""(?:src|href)\s*=|<script|@import|url\(|https?://""", page), (
        "one file, no network, no script"
    )


def test_where_the_time_went_is_told_by_task_and_a_rung_by_its_tasks() -> None:
    page = pages.html(FULL)
    times = page[page.index("Where the time went") :]
    order = [times.index(f"role : Do {name}") for name in ("judge", "extract", "imports", "audit", "gates")]
    assert order == sorted(order)
    assert "1 check, 5.5 s" in times.split("<b>judge</b>")[1][:400]


def test_the_verdict_is_one_sentence_and_hosts_with_trouble_come_first() -> None:
    failing = copy.deepcopy(FULL)
    failing["counts"] = {"checks": 12, "failed": 1, "warned": 1, "changed": 0}
    failing["hosts"] = {
        "good": report(gates={"checks": [check("disk")], "data": {}})["hosts"]["local"],
        "bad": FULL["hosts"]["local"],
    }
    page = pages.html(failing)
    assert "1 of 12 checks failed, in audit on bad" in page
    assert page.index('id="bad"') < page.index('id="good"')
    away = pages.html({**FULL, "hosts": {"away": UNREACHABLE}})
    assert "not reached: away" in away
    assert "correct its address" in away


def test_what_does_not_apply_is_not_said_to_have_passed() -> None:
    made = report(gates={"checks": [check("disk"), check("clock", "warn"), check("driver", "n/a")], "data": {}})
    made["counts"].update(checks=3, warned=1)
    told = "all 2 checks that apply passed, 1 of them with a warning; 1 not applicable"
    assert pages.view(made)["headline"] == told
    del made["hosts"]["local"]["sections"]["gates"]["checks"][2]
    made["counts"]["checks"] = 2
    assert pages.view(made)["headline"] == "all 2 checks passed, 1 of them with a warning"


def test_a_host_on_which_nothing_applied_is_named_beside_one_that_passed() -> None:
    made = report(gates={"checks": [check("disk")], "data": {}})
    idle = {"audit": {"checks": [check("env", "n/a")], "data": {}}}
    made["hosts"]["idle"] = {**made["hosts"]["local"], "verdict": "could not run", "sections": idle}
    assert pages.view(made)["headline"] == "nothing was checked on idle, and that proves nothing"


def test_the_truth_rung_alone_has_its_plots() -> None:
    layers = [{"layer": 0, "worst": 0.01, "bound": 0.04}, {"layer": 5, "worst": 0.03, "bound": 0.05}]
    reports = [{"architecture": "llama", "tensor_parallel_size": 2, "small_cache": True, "layers": layers}]
    page = pages.html(report(truth={"checks": [check("llama")], "data": {"reports": reports}}))
    assert "Truth, llama, tensor parallel 2, small cache: difference per layer" in page
    assert page.count("<svg") == 1
    assert "layer 5: worst row 3.000%" in page
    assert "median row" not in page


def test_what_a_report_holds_cannot_become_markup() -> None:
    evil = '</code><script>alert(1)</script><b a="'
    nasty = report(
        audit={"checks": [check(evil, "fail", file=evil, remedy=evil)], "data": {"log": evil, "stack": evil}}
    )
    nasty["hosts"][evil] = nasty["hosts"].pop("local")
    assert "<script" not in pages.html(nasty)


def test_a_report_of_schema_1_is_shown_under_todays_names() -> None:
    former = {"extract": "extraction", "judge": "tensors"}
    earlier = copy.deepcopy(FULL)
    earlier["schema"] = 1
    host = earlier["hosts"]["local"]
    host["sections"] = {former.get(name, name): section for name, section in host["sections"].items()}
    for task in host["tasks"]:
        task["sections"] = [former.get(name, name) for name in task["sections"]]
    assert schema1.current(earlier) == FULL
    assert schema1.current(FULL) is FULL


def test_failing_checks_are_grouped_by_what_mends_them() -> None:
    many = [check(f"probe {number}", "fail", remedy="apply the series") for number in range(9)]
    many[8]["file"] = "speculators/x.py"
    page = pages.html(report(audit={"checks": [*many, check("other", "fail", remedy="free some disk")], "data": {}}))
    assert page.count('class="problem"') == 2
    assert "9 failing checks" in page
    assert page.index("What failed, where, and what to do") < page.index('class="ladder"')
    assert "and 3 more, below" in page
    assert page.index("<b>probe 8</b>") < page.index("<b>probe 0</b>"), "what names a place leads"


@pytest.mark.parametrize(
    "change",
    [
        {"hosts": {}, "verdict": "could not run", "error": "no inventory"},
        {"hosts": {"a": {"verdict": "could not run", "changed": 0, "unreachable": True, "sections": {},
                         "failures": []}}},
        {"hosts": {"a": {"verdict": "could not run", "changed": 0, "unreachable": False, "failures": [],
                         "sections": {"audit": {"checks": [check("nothing to check", "n/a")], "data": {}}}}}},
        {"hosts": {"a": {"verdict": "fail", "changed": 0, "unreachable": False, "sections": {},
                         "failures": [{"task": "t", "message": "it broke\nTraceback"}]}}},
    ],
)  # fmt: skip
def test_runs_that_checked_nothing_have_pages_too(change: dict[str, Any]) -> None:
    document = {**FULL, **change}
    jsonschema.validate(document, SCHEMA)
    page = pages.html(document)
    assert any(text in page for text in ("no inventory", "could not be reached", "it broke", "nothing was checked"))
    suites = ET.fromstring(junit.build(document))
    assert int(suites.get("errors", "0")) >= 1


def test_a_section_with_numbers_that_cannot_be_drawn_keeps_the_page() -> None:
    broken = copy.deepcopy(FULL)
    broken["hosts"]["local"]["sections"]["judge"]["data"]["lengths"] = {"edges": [0], "counts": [1, 2]}
    page = pages.html(broken)
    assert page.count("<svg") == 3
    assert "cannot be drawn" in page


def test_junit_has_one_case_per_check_with_place_time_and_outcome() -> None:
    suites = ET.fromstring(junit.build(FULL))
    assert suites.attrib == {
        "name": "aerie",
        "time": "60.0",
        "tests": "6",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    cases = {case.get("name"): case for case in suites.iter("testcase")}
    bad = cases["call of X"]
    assert (bad.get("classname"), bad.get("file"), bad.get("line")) == ("local.audit", "speculators/x.py", "7")
    failure = bad.find("failure")
    assert failure is not None
    assert "remedy: apply the series" in str(failure.text)
    assert cases["driver"].find("skipped") is not None
    assert cases["import a:b"].get("time") == "1.500"
    assert "warning" in str(cases["import a:b"].findtext("system-out"))


# What the readers of CI systems know: attributes that must be there, attributes that may, and children.
GRAMMAR = {
    "testsuites": ({"tests", "failures", "errors"}, {"name", "time", "skipped"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"},
        set(),
        {"testcase"},
    ),
    "testcase": ({"name", "classname"}, {"time", "file", "line"}, {"failure", "error", "skipped", "system-out"}),
    "failure": ({"message", "type"}, set(), set()),
    "error": ({"message"}, set(), set()),
    "skipped": ({"message"}, set(), set()),
    "system-out": (set(), set(), set()),
}


def assert_readable(element: ET.Element) -> None:
    must, may, children = GRAMMAR[element.tag]
    assert must <= set(element.attrib) <= must | may, (element.tag, element.attrib)
    assert {child.tag for child in element} <= children
    for name in {"time", "line"} & set(element.attrib):
        assert float(element.attrib[name]) >= 0
    if element.tag == "testsuite":
        dt.datetime.strptime(element.attrib["timestamp"], "%Y-%m-%dT%H:%M:%S")  # noqa: DTZ007
    if element.tag.startswith("testsuite"):
        found = {"tests": len(list(element.iter("testcase"))), "failures": len(list(element.iter("failure")))}
        found |= {"errors": len(list(element.iter("error"))), "skipped": len(list(element.iter("skipped")))}
        assert {name: int(element.attrib[name]) for name in found} == found
    if element.tag == "testcase":
        assert sum(child.tag != "system-out" for child in element) <= 1, "one outcome"
    for child in element:
        assert_readable(child)


UNREACHABLE = {"verdict": "could not run", "changed": 0, "unreachable": True, "sections": {}, "failures": []}


@pytest.mark.parametrize(
    "document",
    [
        FULL,
        {**FULL, "hosts": {}, "error": "no inventory"},
        {**FULL, "hosts": {**FULL["hosts"], "away": UNREACHABLE}},
        report(audit={"checks": [check("colour \x1b[31m\x00 \ud800", "fail", file="a\x01", line=3)], "data": {}}),
    ],
    ids=["full", "not started", "unreachable", "odd characters"],
)
def test_junit_is_what_ci_systems_read(document: dict[str, Any]) -> None:
    root = ET.fromstring(junit.build(document))
    assert root.tag == "testsuites"
    assert_readable(root)


def test_characters_that_xml_forbids_do_not_break_the_file() -> None:
    document = report(audit={"checks": [check("colour \x1b[31m\x00 \ud800", "fail")], "data": {}})
    ET.fromstring(junit.build(document))


def test_writing_leaves_two_whole_files(tmp_path: Path) -> None:
    names = sorted(path.name for path in pages.write(FULL, tmp_path))
    assert names == ["junit.xml", "report.html"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0], [1e-9, 3e-9], [7.0, 1234567.0], [5.0]])
def test_axes_hold_their_values_between_round_ticks(values: list[float]) -> None:
    axis = plots.linear_axis(values)
    assert 1 < len(axis.ticks) < 14
    assert all(0.0 <= axis.place(value) <= 1.0 for value in values)


def test_log_axes_start_and_end_at_powers_of_ten() -> None:
    axis = plots.log_axis([0.004, 0.03])
    assert axis.ticks == pytest.approx((0.001, 0.01, 0.1))
    assert axis.place(0.01) == pytest.approx(0.5)


def test_the_pages_of_an_earlier_run_are_made_again_by_command(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(FULL))
    command = [sys.executable, "-m", "reporting.pages", str(tmp_path / "report.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path / "junit.xml"), str(tmp_path / "report.html")]
    assert "18,432" in (tmp_path / "report.html").read_text()

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible.module_utils.aerie.shared.progress import duration, progress_line
from reporting import folder, terminal, verdict


def check(name: str, status: str = "pass", **more: Any) -> dict[str, Any]:
    return {"name": name, "status": status, "found": "a", "wanted": "b", "remedy": "", **more}


def host(*sections: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = {**verdict.new_host(), **more}
    verdict.add_sections(made, list(sections))
    return made


def section(name: str, *checks: dict[str, Any], **data: Any) -> dict[str, Any]:
    return {"section": name, "checks": list(checks), "data": data}


def build(**hosts: dict[str, Any]) -> dict[str, Any]:
    return verdict.build(hosts, "20260101T000000Z-7", 1767225600.0, 1767225810.0, {"playbook": "site.yml"})


FAILURE = {"task": "role : do it", "message": "no"}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (host(section("gates", check("disk"))), "pass"),
        (host(section("gates", check("disk", "warn"), check("shm", "n/a"))), "pass"),
        (
            host(section("audit", check("env", "n/a")), section("patch", check("series", "n/a"))),
            "could not run",
        ),
        (host(section("audit", check("env", "n/a")), section("gates", check("disk", "warn"))), "pass"),
        (host(section("audit", check("env", "n/a")), failures=[FAILURE]), "fail"),
        (host(section("gates", check("disk", "fail"))), "fail"),
        (host(section("gates", check("disk")), failures=[FAILURE]), "fail"),
        (host(unreachable=True, failures=[FAILURE]), "could not run"),
        (host(section("gates", check("disk", "fail")), unreachable=True), "fail"),
        (host(section("inventory", check("tags", "fail")), failures=[FAILURE]), "could not run"),
        (host(section("inventory", check("tags"))), "could not run"),
        (host(), "could not run"),
    ],
)
def test_verdict_of_a_host(made: dict[str, Any], expected: str) -> None:
    assert verdict.judge_host(made) == expected


def test_verdict_of_a_run_is_its_worst_and_no_host_is_no_pass() -> None:
    good, bad, away = (
        host(section("gates", check("a"))),
        host(section("gates", check("a", "fail"))),
        host(unreachable=True),
    )
    assert build(good=good)["verdict"] == "pass"
    assert build(good=good, bad=bad, away=away)["verdict"] == "fail"
    assert build(good=good, away=away)["verdict"] == "could not run"
    assert build()["verdict"] == "could not run"


def test_checks_that_do_not_apply_are_said_to_prove_nothing() -> None:
    idle = host(section("audit", check("environment", "n/a", found="no environment yet")))
    made = build(good=host(section("gates", check("disk"))), idle=idle)
    assert made["verdict"] == "could not run"
    lines = [line.strip() for line in terminal.render(made, "/r")]
    after = lines[lines.index("idle: could not run") :]
    assert after[2:4] == ["nothing was checked: that proves nothing", "environment does not apply: no environment yet"]


def test_the_hosts_to_judge_are_those_that_the_request_names() -> None:
    request = section("inventory", check("tags"), hosts=["a", "b"])
    good = host(section("gates", check("disk")))
    assert list(verdict.requested_hosts({"bastion": host(request), "b": good, "other": good})) == ["b", "other", "a"]
    assert build(**verdict.requested_hosts({"bastion": host(request), "b": good}))["verdict"] == "could not run"
    assert build(**verdict.requested_hosts({"bastion": host(request), "b": good, "a": good}))["verdict"] == "pass"
    refused = {"bastion": host(section("inventory", check("tags", "fail"), hosts=[]))}
    assert verdict.requested_hosts(refused) == refused
    assert verdict.requested_hosts({"b": good}) == {"b": good}


def test_a_check_made_again_replaces_its_answer() -> None:
    made = host(section("audit", check("grep", "fail", file="x.py", line=3), check("grep", file="y.py")))
    verdict.add_sections(made, section("audit", check("grep", "pass", file="x.py", line=3)))
    assert [c["status"] for c in verdict.checks_of(made)] == ["pass", "pass"]
    assert build(made=made)["counts"]["checks"] == 2


def test_written_report_is_whole_and_latest_follows(tmp_path: Path) -> None:
    first = {**build(local=host(section("gates", check("disk")))), "run": "one"}
    second = {**first, "run": "two"}
    assert folder.write(first, tmp_path) == tmp_path / "one" / "report.json"
    folder.write(second, tmp_path)
    assert (tmp_path / "latest").readlink() == Path("two")
    assert json.loads((tmp_path / "latest" / "report.json").read_text())["run"] == "two"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "one", "two"]
    assert [p.name for p in (tmp_path / "one").iterdir()] == ["report.json"]


def test_the_ten_second_reading_says_what_failed_and_how_to_mend_it() -> None:
    bad = check("disk", "fail", found="3 GB free", wanted="9 GB", remedy="free 6 GB", file="/srv")
    made = build(
        local=host(
            section("patch", check("p"), patches=[{"id": "1", "state": "applied"}, {"id": "2", "state": "applied"}]),
            section("extract", check("count"), samples=1234, tokens=56789, tokens_per_s=812.4),
            section("judge", check("t"), largest_difference=0.0123),
            section("gates", bad),
        ),
        away=host(unreachable=True, failures=[{"task": "host_gates : gates", "message": "no route"}]),
    )
    text = "\n".join(terminal.render(made, "/r/report.json"))
    for part in (
        "VERDICT: FAIL",
        "4 checks, 1 failed",
        "3 min 30 s",
        "2 applied",
        "1,234 samples, 56,789 tokens, 812 tokens/s",
        "1.23%",
        "FAILED disk (/srv): found 3 GB free, wanted 9 GB",
        "remedy: free 6 GB",
        "away: could not run, unreachable",
        "no route",
        "report: /r/report.json",
    ):
        assert part in text
    assert "would change" not in text
    made["command"]["check"] = True
    assert "; 0 would change (check mode); " in terminal.render(made, "/r/report.json")[0]


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (
            {"samples": 12, "total": 64, "tokens_per_s": 812.4, "seconds_left": 200},
            "12/64 samples, 812 tokens/s, 3 min 20 s left",
        ),
        (
            {"samples": 0, "total": 64, "tokens_per_s": None, "seconds_left": None},
            "0/64 samples",
        ),
        (
            {
                "samples": 9,
                "total": 10,
                "tokens_per_s": 950.0,
                "ceiling_tokens_per_s": 1000.0,
                "bytes_written": 2_340_000_000,
                "seconds_left": 3,
            },
            "9/10 samples, 950 tokens/s (95% of 1,000 without waiting for files), 2.3 GB written, 3 s left",
        ),
        (
            {"samples": 1, "total": 2, "gpu_memory_bytes": [61_200_000_000, 60_900_000_000]},
            "1/2 samples, GPU memory 61.2 60.9 GB",
        ),
        ({}, "0/? samples"),
        ({"phase": "loading the model", "samples": 3, "total": 9}, "loading the model, 3/9 samples"),
        ({"phase": "reading the data", "looked_at": 12_000, "samples": 0}, "reading the data: 12,000 done"),
    ],
)
def test_progress_line(progress: dict[str, Any], line: str) -> None:
    assert progress_line(progress) == line


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (3599.7, "1 h 0 min"), (7500, "2 h 5 min")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text

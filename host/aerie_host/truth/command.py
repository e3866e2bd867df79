"""The command ``truth``: run the battery for each architecture asked for, and turn its report into checks."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerie_host.report.outcome import Outcome, UsageError
from aerie_host.shared.checks import Checks
from aerie_host.shared.durable import write_json
from aerie_host.truth.names import ARCHITECTURES, ASKED_FOR, CALLS, NAMES

if TYPE_CHECKING:
    from aerie_host.spec import Spec

SEED = 20_000
REMEDY = "do not extract with this stack; docs/verification.md says how to narrow it down"
CACHES = ("ample", "small")
# Neighbouring layers must differ by this many times what rounding explains, or a mix-up would not be seen.
SEPARATION = 2.0
LOG_LINES = 15
_FRAME = re.compile(r'File "(.*)", line (\d+), in (\S+)$')


def run(spec: Spec, check: bool) -> Outcome:
    """Prove that captured states are the model's, for any batch; with ``check`` a new proof is not kept."""
    architectures = spec.strings("architectures")
    tensor_parallel_sizes = spec.numbers("tensor_parallel_sizes", [1])
    caches = spec.strings("caches", list(CACHES))
    cases = spec.strings("cases", [])
    seed = spec.number("seed", SEED)
    device = spec.choice("device", ("cpu", "cuda"), "cpu")
    timeout = spec.number("timeout", 1800)
    proofs = Path(spec.text("proofs"))
    identity = spec.mapping("identity")
    again = spec.flag("again", False)
    spec.finish()
    if not architectures:
        raise UsageError("truth: no architecture is named")
    if not caches or not tensor_parallel_sizes:
        raise UsageError("truth: caches and tensor_parallel_sizes name no run")
    for what, given, known in (
        ("architectures", architectures, ARCHITECTURES),
        ("caches", caches, CACHES),
        ("cases", cases, (*NAMES, *CALLS)),
    ):
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise UsageError(f"truth: {', '.join(unknown)}: known {what} are {', '.join(known)}")
    drawn = {"seed": seed, "cases": cases, "device": device}
    jobs = [
        {"architecture": name, "tensor_parallel_size": size, "small": False, **drawn}
        for name in architectures
        for size in tensor_parallel_sizes
        if "ample" in caches
    ]
    if "small" in caches:
        first = {"architecture": architectures[0], "tensor_parallel_size": tensor_parallel_sizes[0]}
        jobs.append({**first, "small": True, **drawn})
    subject = {
        "identity": identity,
        "program": program_digest(),
        "jobs": jobs,
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith("VLLM_")},
    }
    proof = proofs / f"{hashlib.sha256(json.dumps(subject, sort_keys=True).encode()).hexdigest()[:16]}.json"
    if proof.exists() and not again:
        return _kept(proof)
    outcome = _prove(jobs, timeout)
    if not outcome.failed and not check:
        proofs.mkdir(parents=True, exist_ok=True)
        kept = {"proved_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "checks": outcome.checks.as_list()}
        write_json(proof, {**kept, "data": outcome.data, "subject": subject})
    return outcome


def program_digest() -> str:
    """The sha256 of this program, or of its sources where it does not run from its zip file."""
    archive = getattr(globals().get("__loader__"), "archive", None)
    if archive is not None:
        return hashlib.sha256(Path(archive).read_bytes()).hexdigest()
    sources = sorted(Path(__file__).resolve().parents[1].rglob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def _kept(proof: Path) -> Outcome:
    """The checks of an earlier run over the same lock, series, program and settings.

    The proof says nothing of the bytes on disk; that they are still those of lock and series is the audit's to say.
    """
    document = json.loads(proof.read_text(encoding="utf-8"))
    checks = Checks()
    for entry in document["checks"]:
        checks.add(**entry)
    message = f"proved at {document['proved_at']}; lock, series, program and settings are the same since"
    return Outcome("truth", checks, {**document["data"], "proved_at": document["proved_at"]}, message=message)


def _prove(jobs: list[dict[str, Any]], timeout: int) -> Outcome:
    checks = Checks()
    reports = []
    deadline = time.monotonic() + timeout
    for job in jobs:
        report, failure = _battery(job, deadline)
        size = job["tensor_parallel_size"]
        label = f"{job['architecture']}{f', tensor parallel {size}' if size > 1 else ''}"
        label += ", small cache" if job["small"] else ""
        # Who reads of a failure has to know how to see it again.
        remedy = f"{REMEDY}; the same cases again: truth_seed={job['seed']}"
        if report is None:
            checks.add(f"{label}: runs", "fail", failure, "a report", remedy)
            continue
        reports.append(report)
        add_checks(checks, label, report, remedy)
    batches = [batch for report in reports for batch in report["batches"]]
    message = (
        f"{len(reports)} runs of the generator, {sum(batch['rows'] for batch in batches):,} rows, at most "
        f"{max((batch['share_of_bound'] for batch in batches), default=0.0):.0%} of what rounding explains"
    )
    return Outcome("truth", checks, {"seed": jobs[0]["seed"], "reports": reports}, message=message)


def _battery(job: dict[str, Any], deadline: float) -> tuple[dict[str, Any] | None, str]:
    """Run one architecture in a process of its own; return its report, or why there is none."""
    with tempfile.TemporaryDirectory(prefix="aerie-truth-") as folder:
        out = Path(folder) / "report.json"
        try:
            code, log = run_engine({**job, "out": str(out)}, max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as expired:
            tail = (expired.stdout or b"").decode(errors="replace").splitlines()[-LOG_LINES:]
            return None, "no answer in time; the log ends: " + " | ".join(tail)
        if code != 0 or not out.exists():
            print(log, file=sys.stderr)
            return None, _cause(log)
        report: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return report, ""


def run_engine(job: dict[str, Any], timeout: float) -> tuple[int, str]:
    """Run a job of ``engine`` in a fresh interpreter; return exit code and log, or raise ``TimeoutExpired``."""
    done = subprocess.run(
        [sys.executable, "-m", "aerie_host.truth.engine"],
        input=json.dumps(job),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=timeout,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    return done.returncode, done.stdout


def _cause(log: str) -> str:
    """The line of a log that names the error: the first exception of the program, else its last line; and the case."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    asked = [line.removeprefix(ASKED_FOR) for line in lines if line.startswith(ASKED_FOR)]
    named = [line for line in lines if "Error: " in line or line.endswith("Error")]
    own = [line for line in named if not line.startswith("(")]
    cause = (own or named or lines or ["it ended without a word"])[-1]
    if cause in named and cause.endswith("Error"):
        # An error that says nothing is known by its place: the frame above it in the trace.
        frames = list(filter(None, map(_FRAME.match, lines[: len(lines) - lines[::-1].index(cause)])))
        cause += f" in {frames[-1][3]}, {Path(frames[-1][1]).name} line {frames[-1][2]}" if frames else ""
    return f"asked for '{asked[-1]}': {cause[:500]}" if asked else cause[:500]


def add_checks(checks: Checks, label: str, report: dict[str, Any], remedy: str = REMEDY) -> None:
    """Add what one battery's report proves or refutes."""
    for batch in report["batches"]:
        findings = batch["findings"]
        more = f"; and {len(findings) - 3} more" if len(findings) > 3 else ""
        checks.require(
            f"{label}: {batch['name']}",
            not findings and batch["rows"] > 0,
            "; ".join(findings[:3]) + more or f"{batch['rows']} rows, largest difference {batch['largest']:.2%}",
            "every row is the row of Transformers in float32, within rounding",
            remedy,
        )
    if "separation" in report:
        largest = max(report["bounds"])
        checks.require(
            f"{label}: the check can tell layers apart",
            report["separation"] > SEPARATION * largest,
            f"neighbouring layers differ by {report['separation']:.1%}, rounding explains {largest:.1%}",
            f"at least {SEPARATION:g} times as much",
            "the checkpoint of this check is at fault, not the stack",
        )
    if "refusals" in report:
        checks.require(
            f"{label}: bad calls are refused",
            not report["refusals"],
            "; ".join(report["refusals"]) or "each refused",
            "an empty batch or sequence and token ids outside the vocabulary raise ValueError",
            remedy,
        )
    if "truncated_to" in report:
        checks.require(
            f"{label}: a sequence over the maximum",
            report["truncated_to"] == report["max_length"],
            f"{report['truncated_to']} tokens",
            f"cut to {report['max_length']}, and input_ids say so",
            remedy,
        )
    if report["small_cache"]:
        counts = report["scheduler"]
        checks.require(
            f"{label}: prefills were split and pre-empted",
            counts["split"] > 0 and counts["preempted"] > 0,
            f"{counts['split']} pieces of prefills, {counts['preempted']} pre-emptions in {counts['steps']} steps",
            "at least one of each",
            "the battery is at fault: its step or cache is too large to force them",
        )

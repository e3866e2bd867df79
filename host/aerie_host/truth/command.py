"""The command ``truth``: run the battery for each architecture, and keep the proof when every check passes."""

from __future__ import annotations

import dataclasses
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

from aerie_host.report.outcome import Outcome
from aerie_host.shared.checks import Checks
from aerie_host.shared.durable import write_json
from aerie_host.shared.model_config import read_config
from aerie_host.shared.refusal import UsageRefusal
from aerie_host.truth.checks import REMEDY, add_checks
from aerie_host.truth.names import ARCHITECTURES, ASKED_FOR, CALLS, NAMES

if TYPE_CHECKING:
    from aerie_host.spec import Spec

SEED = 20_000
CACHES = ("ample", "small")
LOG_LINES = 15
_FRAME = re.compile(r'File "(.*)", line (\d+), in (\S+)$')


@dataclasses.dataclass(frozen=True)
class Request:
    """What the specification asks for: one engine for each model, size and cache.

    Attributes:
        model: folder of the target whose twin is proven; empty proves none.
        architectures: tiny checkpoints to prove besides.

    """

    model: str
    architectures: list[str]
    tensor_parallel_sizes: list[int]
    caches: list[str]
    cases: list[str]
    seed: int
    device: str

    def jobs(self) -> list[dict[str, Any]]:
        """The jobs of ``engine``; a small cache is tried once, with the first model and size."""
        subjects = [_twin_of(Path(self.model))] if self.model else []
        subjects += [{"architecture": name} for name in self.architectures]
        common = {"seed": self.seed, "cases": self.cases, "device": self.device}
        jobs = [
            {**subject, "tensor_parallel_size": size, "small": False, **common}
            for subject in subjects
            for size in self.tensor_parallel_sizes
            if "ample" in self.caches
        ]
        if "small" in self.caches:
            first = {**subjects[0], "tensor_parallel_size": self.tensor_parallel_sizes[0]}
            jobs.append({**first, "small": True, **common})
        return jobs


def _read_request(spec: Spec) -> Request:
    """The request; ``UsageRefusal`` when it names nothing, or what is not known."""
    request = Request(
        model=spec.text("model", ""),
        architectures=spec.strings("architectures", []),
        tensor_parallel_sizes=spec.numbers("tensor_parallel_sizes", [1]),
        caches=spec.strings("caches", list(CACHES)),
        cases=spec.strings("cases", []),
        seed=spec.number("seed", SEED),
        device=spec.choice("device", ("cpu", "cuda"), "cpu"),
    )
    if not request.architectures and not request.model:
        wanted = f"a target model, or some of {', '.join(ARCHITECTURES)}"
        raise UsageRefusal("truth", "neither a model nor an architecture is named", wanted)
    if not request.caches or not request.tensor_parallel_sizes:
        raise UsageRefusal("truth", "caches or tensor_parallel_sizes is empty", "at least one value in each")
    for name, values, known in (
        ("architectures", request.architectures, ARCHITECTURES),
        ("caches", request.caches, CACHES),
        ("cases", request.cases, (*NAMES, *CALLS)),
    ):
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise UsageRefusal("truth", f"unknown {name}: {', '.join(unknown)}", f"some of {', '.join(known)}")
    return request


def run(spec: Spec, check: bool) -> Outcome:
    """Prove that captured states are the model's, for any batch; with ``check`` a new proof is not kept."""
    request = _read_request(spec)
    timeout = spec.number("timeout", 1800)
    proofs = Path(spec.text("proofs"))
    identity = spec.mapping("identity")
    again = spec.flag("again", False)
    spec.finish()
    jobs = request.jobs()
    subject = {
        "identity": identity,
        "program": program_digest(),
        "jobs": jobs,
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith("VLLM_")},
    }
    proof = proofs / f"{hashlib.sha256(json.dumps(subject, sort_keys=True).encode()).hexdigest()[:16]}.json"
    if proof.exists() and not again:
        return _earlier_outcome(proof)
    outcome = _prove(jobs, timeout)
    if not outcome.failed and not check:
        proofs.mkdir(parents=True, exist_ok=True)
        kept = {"proved_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "checks": outcome.checks.as_list()}
        write_json(proof, {**kept, "data": outcome.data, "subject": subject})
    return outcome


def _twin_of(target: Path) -> dict[str, Any]:
    """The part of a job that names the target whose twin is run; another configuration makes another job."""
    config = read_config(target)
    name = next(iter(config.get("architectures") or []), config.get("model_type", "the target model"))
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    return {"architecture": f"twin of {name}", "model": str(target), "config": digest}


def program_digest() -> str:
    """The sha256 of this program, or of its sources where it does not run from its zip file."""
    archive = getattr(globals().get("__loader__"), "archive", None)
    if archive is not None:
        return hashlib.sha256(Path(archive).read_bytes()).hexdigest()
    sources = sorted(Path(__file__).resolve().parents[1].rglob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def _earlier_outcome(proof: Path) -> Outcome:
    """The checks of an earlier run over the same lock, series, program and settings.

    The proof says nothing about the files on disk: the audit checks that they are still those of lock and series.
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
        # Whoever reads about a failure must be able to repeat it.
        remedy = f"{REMEDY}; repeat the same cases with truth_seed={job['seed']}"
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
    """The case at which an engine gave up, and the line of its log that names the error, or else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    cases = [line.removeprefix(ASKED_FOR) for line in lines if line.startswith(ASKED_FOR)]
    named = [line for line in lines if "Error: " in line or "Refusal: " in line or line.endswith("Error")]
    own = [line for line in named if not line.startswith("(")]
    cause = (own or named or lines or ["it ended without a word"])[-1]
    if cause in named and cause.endswith("Error"):
        # An error without a message is named by its place: the frame above it in the trace.
        frames = list(filter(None, map(_FRAME.match, lines[: len(lines) - lines[::-1].index(cause)])))
        cause += f" in {frames[-1][3]}, {Path(frames[-1][1]).name} line {frames[-1][2]}" if frames else ""
    return f"asked for '{cases[-1]}': {cause[:500]}" if cases else cause[:500]

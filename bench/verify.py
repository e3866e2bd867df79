#!/usr/bin/env python3
"""Measure the two first rungs of the verification on this machine.

audit    env_audit's work in a process of its own: start of Python, imports, reading, checks. The least wall time of the
         repeats, as other work of the machine only adds, and the processor time of all its processes.
imports  the command `imports` beside one bare import of the generator, in one run, by processor time.

Run with the controller's Python (.venv/bin/python bench/verify.py --environment var/ml-env).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from aerie_paths import CHECKOUT, HOST_PROGRAM

from ansible.module_utils.aerie.audit.run import Demand, run
from ansible.module_utils.aerie.distributions.lock import Pin, parse
from ansible.module_utils.aerie.patching.series import from_raw, read_directory


def request(environment: Path, stack: dict[str, Any]) -> dict[str, Any]:
    """What the action plugin hands to the module."""
    return {
        "environment": str(environment),
        "stack": stack,
        "pins": parse((CHECKOUT / "stacks" / stack["lock"]).read_text(encoding="utf-8")),
        "series": [read_directory(CHECKOUT / "files/patches" / name, yaml.safe_load) for name in stack["series"]],
    }


def audit(given: dict[str, Any]) -> dict[str, Any]:
    """The module's work, in this process; the figures of what it read."""
    stack = given["stack"]
    series = [from_raw(raw) for raw in given["series"]]
    faults = [str(fault) for fault in stack["faults"]]
    pins = [Pin(*pin) for pin in given["pins"]]
    found = run(Demand(Path(given["environment"]), stack["name"], pins, series, faults, stack["vllm_distribution"]))
    return {"checks": len(found.checks), "failed": len(found.checks.failed), **found.data}


def cpu() -> float:
    """Processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_audit(given: dict[str, Any], repeats: int) -> None:
    """Run it in turn, print the least."""
    figures = []
    for _ in range(repeats):
        began, before = time.monotonic(), cpu()
        done = subprocess.run(
            [sys.executable, __file__, "--inside"], input=json.dumps(given), text=True, capture_output=True, check=True
        )
        figures.append((time.monotonic() - began, cpu() - before, json.loads(done.stdout)))
    wall, _, found = min(figures, key=lambda one: one[0])
    seconds = ", ".join(f"{name} {value}" for name, value in found["seconds"].items())
    print(f"audit    {wall:.2f} s of wall time, {min(one[1] for one in figures):.2f} s of processor time")
    print(f"         {found['summary']}; {found['checks']} checks, {found['failed']} failed; {seconds}")


def measure_imports(environment: Path, stack: dict[str, Any]) -> None:
    """Run the command with `measure`."""
    spec = {"device": stack["device"], "vllm_distribution": stack["vllm_distribution"], "measure": True}
    done = subprocess.run(
        # Not resolved: the link is what makes it the environment's Python.
        [str(environment.absolute() / "bin/python"), "-m", "aerie_host", "imports", "--spec", "-"],
        input=json.dumps(spec), text=True, capture_output=True, check=False, cwd="/",
        env={**os.environ, **stack.get("environment", {}), "PYTHONPATH": str(HOST_PROGRAM)},
    )  # fmt: skip
    data = json.loads(done.stdout.splitlines()[-1])["aerie"]["data"]
    print(f"imports  {data['ratio']} times the processor time of one bare import of the generator")
    print(f"         {data['seconds']:.1f} s of wall time, the bare import {data['bare_import_seconds']:.1f} s")


def main() -> int:
    """Exit 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, default=CHECKOUT / "var/ml-env")
    parser.add_argument("--stack", default="vllm-0.16-cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(audit(json.load(sys.stdin))))
        return 0
    stack = yaml.safe_load((CHECKOUT / f"stacks/{options.stack}.yml").read_text(encoding="utf-8"))
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    measure_audit(request(options.environment, stack), options.repeats)
    measure_imports(options.environment, stack)
    return 0


if __name__ == "__main__":
    sys.exit(main())

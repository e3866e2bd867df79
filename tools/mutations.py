#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Break each patch, hunk, contract and property in turn, and write which rung of the verification caught it.

Works on a hard-linked copy of an environment; the given one is never touched.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from aerie_paths import CHECKOUT

from tools.mutationkit import groups
from tools.mutationkit.bench import HOST_RUNGS, make_bench, sentence
from tools.mutationkit.mutating import CannotMutateError
from tools.mutationkit.page import TITLES, write

MAKERS = {
    "patches": groups.patch_rows,
    "hunks": groups.hunk_rows,
    "contracts": groups.contract_rows,
    "properties": groups.property_rows,
    "undeclared": groups.undeclared_rows,
}


def main() -> int:
    """Exit 0 when everything is caught, 1 when something is not, 2 when the bench is not in order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--environment", type=Path, default=CHECKOUT / "var/ml-env", help="an environment (it is copied)"
    )
    parser.add_argument("--stack", default="vllm-0.16-cpu")
    parser.add_argument("--work", type=Path, help="where to copy it, on the same filesystem (default: beside it)")
    parser.add_argument("--rungs", default="imports,truth", help="rungs after the audit, or none")
    parser.add_argument("--groups", default=",".join(TITLES), help="what to break; other sections of the page stay")
    parser.add_argument("--only", default="", help="only rows whose name matches this pattern; others of the page stay")
    parser.add_argument("--output", type=Path, default=CHECKOUT / "docs/mutations.md")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.groups.split(",")) - set(MAKERS))
    if unknown:
        parser.error(f"--groups: {', '.join(unknown)}: known are {', '.join(MAKERS)}")
    rungs = [rung for rung in arguments.rungs.split(",") if rung in HOST_RUNGS]
    work = arguments.work or arguments.environment.resolve().parent / "mutations-copy"
    bench = make_bench(arguments.environment, work, arguments.stack, rungs)
    bench.converge(bench.raws)
    # What truth is asked for is asked undamaged first, where it is needed.
    for rung in ("audit", *(rung for rung in rungs if rung != "truth")):
        failed = bench.audit(bench.raws) if rung == "audit" else bench.host(rung, {})
        if failed:
            print(f"the environment does not pass {rung} before any mutation: {sentence(failed, '')}", file=sys.stderr)
            return 2
    rows: dict[str, list[groups.Row]] = {}
    for group in arguments.groups.split(","):
        rows[group] = []
        for row in MAKERS[group](bench, arguments.only):
            rows[group].append(row)
            print(f"{row.seconds:6.1f} s  {row.rung:14} {row.mutation} ({row.damage}): {row.message}", flush=True)
        write(arguments.output, {group: rows[group]}, arguments.stack, bool(arguments.only))
    every = [row for made in rows.values() for row in made]
    missed = [row for row in every if row.rung == groups.NOT_CAUGHT]
    print(f"{len(every) - len(missed)} of {len(every)} caught")
    return 1 if missed or not every else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CannotMutateError as error:
        print(error, file=sys.stderr)
        sys.exit(2)

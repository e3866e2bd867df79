#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Break each patch, hunk and contract in turn, and write which rung of the verification caught it.

Works on a hard-linked copy of an environment; the given one is never touched.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ansible.module_utils
import yaml

ROOT = Path(__file__).resolve().parent.parent
ansible.module_utils.__path__.append(str(ROOT / "module_utils"))
sys.path[:0] = [str(ROOT), str(ROOT / "host")]

from aerie_host.__main__ import COMMANDS  # noqa: E402
from ansible.module_utils.aerie.audit.run import Demand, run  # noqa: E402
from ansible.module_utils.aerie.lock import parse  # noqa: E402
from ansible.module_utils.aerie.patching import engine, plan  # noqa: E402
from ansible.module_utils.aerie.patching.dist import site_packages_of  # noqa: E402
from ansible.module_utils.aerie.patching.request import Request  # noqa: E402
from ansible.module_utils.aerie.patching.series import Series, from_raw, read_directory  # noqa: E402
from ansible.module_utils.aerie.patching.store import Store  # noqa: E402
from tools import mutating  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

# Commands of the host program that judge an environment, after the audit, cheapest first.
HOST_RUNGS = ("imports", "truth")
NOT_CAUGHT = "**not caught**"


@dataclass
class Row:
    """One line of the table."""

    group: str
    mutation: str
    faults: str
    damage: str
    rung: str
    message: str
    seconds: float


@dataclass
class Bench:
    """The copied environment, the stack it belongs to, and how it is judged."""

    environment: Path
    stack: dict[str, Any]
    raws: list[dict[str, Any]]
    rungs: list[str]
    specs: dict[str, dict[str, Any]]

    @property
    def series(self) -> list[Series]:
        """The stack's series, unbroken."""
        return [from_raw(raw) for raw in self.raws]

    @property
    def site(self) -> Path:
        """site-packages of the copy."""
        return site_packages_of(self.environment)[0]

    def pristine(self, series: Series) -> dict[str, bytes]:
        """The wheel's bytes of each file that a series edits."""
        found = plan.make(self.environment, series.distribution, [series], Store(self.environment), False, False)
        return {one.path: one.pristine or b"" for one in found.files if one.path in series.files}

    def converge(self, raws: list[dict[str, Any]]) -> None:
        """Patch the copy with these series, whatever it was before."""
        result = engine.run(Request(self.environment, [from_raw(raw) for raw in raws], restore=True))
        if result.checks.failed:
            raise mutating.CannotMutateError(str(result.checks.failed[0]))

    def judge(self, raws: list[dict[str, Any]], about: str, forgotten: str = "") -> tuple[str, str]:
        """The first rung that fails and what it says; ("", "") when none does.

        ``forgotten`` names a patch of whose faults the stack shall know nothing.
        """
        failed = self.audit(raws, forgotten)
        if failed:
            return "audit", sentence(failed, about)
        for rung in HOST_RUNGS:
            if rung in self.rungs:
                failed = self.host(rung)
                if failed:
                    return rung, sentence(failed, about)
        return "", ""

    def audit(self, raws: list[dict[str, Any]], forgotten: str = "") -> list[dict[str, Any]]:
        """The failing checks of the audit."""
        unknown = {
            str(fault)
            for one in self.series
            for patch in one.patches
            if patch.id == forgotten
            for fault in patch.faults
        }
        lock = (ROOT / "stacks" / self.stack["lock"]).read_text(encoding="utf-8")
        demand = Demand(
            environment=self.environment,
            stack=self.stack["name"],
            pins=parse(lock),
            series=[from_raw(raw) for raw in raws],
            faults=[str(fault) for fault in self.stack["faults"] if str(fault) not in unknown],
            vllm_distribution=self.stack["vllm_distribution"],
        )
        return run(demand).checks.failed

    def host(self, rung: str) -> list[dict[str, Any]]:
        """The failing checks of a command of the host program."""
        done = subprocess.run(
            [str(self.environment / "bin/python"), "-m", "aerie_host", rung, "--spec", "-"],
            input=json.dumps(self.specs.get(rung, {})), capture_output=True, text=True, check=False, cwd="/",
            env={**os.environ, **self.stack.get("environment", {}), "PYTHONPATH": str(ROOT / "host")},
        )  # fmt: skip
        lines = done.stdout.strip().splitlines()
        silent = {"failed": True, "msg": done.stderr[-500:]}
        document: dict[str, Any] = json.loads(lines[-1]) if lines else silent
        if not document.get("failed"):
            return []
        checks = (document.get("aerie") or {}).get("checks", [])
        named = [one for one in checks if one["status"] == "fail"]
        return named or [{"name": rung, "found": document.get("msg", "failed"), "wanted": "", "remedy": ""}]


def sentence(failed: list[dict[str, Any]], about: str) -> str:
    """What a person reads first: a failing check that names the patch or a call, with its place."""

    def rank(check: dict[str, Any]) -> tuple[bool, bool, bool, bool]:
        name = str(check["name"])
        # A call with its place tells most, then a probe with its file, then whatever names the patch.
        probe = name.startswith(f"probe {about}") and bool(about)
        return not name.startswith("call of"), not probe, about not in name, not name.startswith("file ")

    one = min(failed, key=rank)
    place = f" ({one['file']}{':' + str(one['line']) if one.get('line') else ''})" if one.get("file") else ""
    others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return f"{one['name']}{place}: {one['found']}{others}"


def patch_rows(bench: Bench, only: str) -> Iterator[Row]:
    """Each patch, taken back by hand on the host, and dropped from the series."""
    for raw, series in zip(bench.raws, bench.series, strict=True):
        pristine = bench.pristine(series)
        others = [one for one in bench.raws if one is not raw]
        for patch in series.patches:
            if only and only not in patch.id:
                continue
            faults = ", ".join(map(str, patch.faults))
            yield measured(bench, "patches", patch.id, faults, "taken back by hand on the host", by_hand(bench, patch))
            yield measured(
                bench, "patches", patch.id, faults, "dropped from the series, series applied again",
                dropped(bench, raw, series, pristine, patch.id, others),
            )  # fmt: skip


def undeclared_rows(bench: Bench, only: str) -> Iterator[Row]:
    """Each patch dropped from the series, and its faults from the stack: as if nobody had known of it."""
    for raw, series in zip(bench.raws, bench.series, strict=True):
        pristine = bench.pristine(series)
        others = [one for one in bench.raws if one is not raw]
        for patch in series.patches:
            if not only or only in patch.id:
                yield measured(
                    bench, "undeclared", patch.id, ", ".join(map(str, patch.faults)),
                    "dropped from the series, its faults from the stack",
                    dropped(bench, raw, series, pristine, patch.id, others), forgotten=patch.id,
                )  # fmt: skip


def by_hand(bench: Bench, patch: Any) -> Any:
    """A mutation: the patch's edits are not in the files any more, the series still has them."""

    def mutate() -> list[dict[str, Any]]:
        for one in patch.parsed.files:
            path = bench.site / one.path
            mutating.replace(path, mutating.without_patch(path.read_bytes(), one))
        return bench.raws

    return mutate


def dropped(
    bench: Bench, raw: dict[str, Any], series: Series, pristine: dict[str, bytes], name: str, others: list[Any]
) -> Any:
    """A mutation: the series does not have the patch, and the environment is as that series makes it."""

    def mutate() -> list[dict[str, Any]]:
        raws = [*others]
        if len(series.patches) > 1:
            raws.append(mutating.drop(raw, series, pristine, name))
        bench.converge(raws)
        if len(series.patches) == 1:
            for path, content in pristine.items():
                mutating.replace(bench.site / path, content)
        return raws

    return mutate


def hunk_rows(bench: Bench, only: str) -> Iterator[Row]:
    """Each hunk of each patch, taken back alone."""
    for series in bench.series:
        for patch in series.patches:
            if only and only not in patch.id:
                continue
            for file in patch.parsed.files:
                for hunk in file.hunks:
                    name = f"{patch.id}, {Path(file.path).name} line {hunk.new_start}"

                    def mutate(path: Path = bench.site / file.path, hunk: Any = hunk) -> list[dict[str, Any]]:
                        mutating.replace(path, mutating.take_back(path.read_bytes(), hunk))
                        return bench.raws

                    yield measured(bench, "hunks", name, "", "this hunk taken back", mutate)


def contract_rows(bench: Bench, only: str) -> Iterator[Row]:
    """The smallest damage to each contract. The audit must fail in the contract itself, not only in a digest."""
    for series in bench.series:
        for patch in series.patches:
            for contract in patch.contracts:
                if only and only not in patch.id:
                    continue
                yield contract_row(bench, patch.id, contract)


def contract_row(bench: Bench, patch: str, contract: dict[str, Any]) -> Row:
    """Damage what one contract relies on and look for the contract among what fails."""
    kind = next(one for one in ("call", "defines", "source") if one in contract)
    name = f"{patch}: {kind} {contract[kind]}"
    started = time.monotonic()
    path, before = Path(), b""
    try:
        path, content, damage = mutating.damage_contract(bench.environment, contract)
        before = path.read_bytes()
        mutating.replace(path, content)
        caught = [one for one in bench.audit(bench.raws) if one["name"].startswith(f"{patch}: ")]
        rung, message = ("audit", sentence(caught, patch)) if caught else ("", "")
    except mutating.CannotMutateError as error:
        damage, rung, message = "none", "", str(error)
    finally:
        if before:
            mutating.replace(path, before)
    return Row("contracts", name, "", damage, rung or NOT_CAUGHT, message, time.monotonic() - started)


def measured(bench: Bench, group: str, name: str, faults: str, damage: str, mutate: Any, forgotten: str = "") -> Row:
    """Carry out one mutation, judge it, and put the copy in order again."""
    started = time.monotonic()
    try:
        rung, message = bench.judge(mutate(), name.split(",")[0], forgotten)
    except mutating.CannotMutateError as error:
        rung, message = "the series", f"a later patch builds on it, so it cannot be left out alone: {error}"
    finally:
        bench.converge(bench.raws)
    return Row(group, name, faults, damage, rung or NOT_CAUGHT, message, time.monotonic() - started)


TITLES = {
    "patches": "Every patch",
    "hunks": "Every hunk of every patch",
    "contracts": "Every declared contract",
    "undeclared": "Every patch, as if nobody had known that it is needed",
}


def table(rows: list[Row], stack: str, rungs: list[str]) -> str:
    """The page."""
    text = f"""# What catches what

Made by `make mutations` for the stack `{stack}`. Each line breaks one thing in a copy of the environment and names the
first rung of the verification that refused, cheapest rung first ({", ".join(["audit", *rungs])}), with its message.
"""
    for group, title in TITLES.items():
        some = [row for row in rows if row.group == group]
        if not some:
            continue
        caught = sum(row.rung != NOT_CAUGHT for row in some)
        text += f"\n## {title}\n\n{caught} of {len(some)} caught.\n\n"
        text += "| what is broken | fault | how | caught by | message |\n|---|---|---|---|---|\n"
        for row in some:
            cells = (row.mutation, row.faults, row.damage, row.rung, row.message)
            text += "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"
    return text


def main() -> int:
    """Exit 0 when everything is caught, 1 when something is not, 2 when the bench is not in order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path, default=ROOT / "var/ml-env", help="an environment (it is copied)")
    parser.add_argument("--stack", default="vllm-0.16-cpu")
    parser.add_argument("--work", type=Path, help="where to copy it, on the same filesystem (default: beside it)")
    parser.add_argument("--rungs", default="imports", help="rungs after the audit: imports,truth, or none")
    parser.add_argument("--truth-spec", default="{}", help="JSON inputs of the command truth")
    parser.add_argument("--groups", default="patches,hunks,contracts", help=f"what to break, of {', '.join(TITLES)}")
    parser.add_argument("--only", default="", help="only patches whose id holds this")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/mutations.md")
    arguments = parser.parse_args()
    bench = make_bench(arguments)
    bench.converge(bench.raws)
    broken = bench.judge(bench.raws, "")
    if broken[0]:
        print(f"the environment does not pass {broken[0]} before any mutation: {broken[1]}", file=sys.stderr)
        return 2
    makers = {"patches": patch_rows, "hunks": hunk_rows, "contracts": contract_rows, "undeclared": undeclared_rows}
    rows = []
    for group in arguments.groups.split(","):
        for row in makers[group](bench, arguments.only):
            rows.append(row)
            print(f"{row.seconds:6.1f} s  {row.rung:14} {row.mutation} ({row.damage})", flush=True)
    arguments.output.write_text(table(rows, arguments.stack, bench.rungs), encoding="utf-8")
    missed = [row for row in rows if row.rung == NOT_CAUGHT]
    print(f"{len(rows) - len(missed)} of {len(rows)} caught; {arguments.output}")
    return 1 if missed else 0


def make_bench(arguments: argparse.Namespace) -> Bench:
    """Copy the environment and read the stack."""
    stack = yaml.safe_load((ROOT / f"stacks/{arguments.stack}.yml").read_text(encoding="utf-8"))
    raws = [read_directory(ROOT / "files/patches" / name, yaml.safe_load) for name in stack["series"]]
    work = arguments.work or arguments.environment.resolve().parent / "mutations-copy"
    mutating.link_copy(arguments.environment, work)
    promised = {symbol: patch.id for raw in raws for patch in from_raw(raw).patches for symbol in patch.imports}
    rungs = [rung for rung in arguments.rungs.split(",") if rung in HOST_RUNGS and rung in COMMANDS]
    specs = {
        "imports": {"device": stack["device"], "vllm_distribution": stack["vllm_distribution"], "symbols": promised},
        "truth": {
            "architectures": ["llama"],
            "device": stack["device"],
            "proofs": str(work / "proofs"),
            "again": True,
            "identity": {},
            **json.loads(arguments.truth_spec),
        },
    }
    return Bench(work, stack, raws, rungs, specs)


if __name__ == "__main__":
    sys.exit(main())

"""The groups of the table: what is broken, one thing at a time, and what caught it."""

from __future__ import annotations

import functools
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tools.mutationkit import mutating
from tools.mutationkit.bench import sentence
from tools.mutationkit.properties import Damage, damaged, damages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ansible.module_utils.aerie.patching.diff import FileDiff, Hunk
    from ansible.module_utils.aerie.patching.series import Series, SeriesPatch
    from tools.mutationkit.bench import Bench

    # Carries out a damage; returns the series that the copy is then to be held against.
    Mutation = Callable[[], list[dict[str, Any]]]

NOT_CAUGHT = "**not caught**"
UNDECLARED = Path(__file__).with_name("undeclared.yml")
# What a patch that nobody knows of is looked for with; every case would only take longer.
UNDECLARED_CASES = {"cases": ["one", "mixed", "again", "bad_calls"], "caches": ["ample"]}


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


def chosen(bench: Bench, only: str) -> Iterator[tuple[dict[str, Any], Series, SeriesPatch]]:
    """Every patch whose id matches the pattern, after its series as it lies on disk and as it is read."""
    for raw, series in zip(bench.raws, bench.series, strict=True):
        for patch in series.patches:
            if re.search(only, patch.id):
                yield raw, series, patch


def patch_rows(bench: Bench, only: str) -> Iterator[Row]:
    """Each patch, taken back by hand on the host, and dropped from the series."""
    for raw, series, patch in chosen(bench, only):
        for damage, mutate in (
            ("taken back by hand on the host", by_hand(bench, patch)),
            ("dropped from the series, series applied again", dropped(bench, raw, series, patch)),
        ):
            yield measured(bench, "patches", patch.id, patch.faults, damage, mutate)


def undeclared_rows(bench: Bench, only: str) -> Iterator[Row]:
    """Each patch dropped from the series, and nothing known of it: without the audit, what imports and truth see."""
    ways = yaml.safe_load(UNDECLARED.read_text(encoding="utf-8"))
    for raw, series, patch in chosen(bench, only):
        way = ways.get(patch.id, {})
        inputs = {**UNDECLARED_CASES, "architectures": [way.get("architecture", "llama")]}
        if "truth" in bench.rungs:
            bench.sound(inputs)
        edited = [bench.site / path for path in patch.paths]
        judge = functools.partial(bench.judge_running, "", inputs, edited, way.get("fresh", False))
        damage, mutate = "dropped from the series, no audit", dropped(bench, raw, series, patch)
        row = measured(bench, "undeclared", patch.id, patch.faults, damage, mutate, judge)
        if row.rung == NOT_CAUGHT and "elsewhere" in way:
            row.rung, row.message = "its own test", f"{way['elsewhere']}; {patch.test} shows it"
        yield row


def by_hand(bench: Bench, patch: SeriesPatch) -> Mutation:
    """A mutation: the patch's edits are not in the files any more, the series still has them."""

    def mutate() -> list[dict[str, Any]]:
        for one in patch.parsed.files:
            path = bench.site / one.path
            mutating.replace(path, mutating.without_patch(path.read_bytes(), one))
        return bench.raws

    return mutate


def dropped(bench: Bench, raw: dict[str, Any], series: Series, patch: SeriesPatch) -> Mutation:
    """A mutation: the series does not have the patch, and the environment is as that series makes it."""

    def mutate() -> list[dict[str, Any]]:
        pristine = bench.pristine(series)
        raws = [one for one in bench.raws if one is not raw]
        alone = len(series.patches) == 1
        if not alone:
            raws.append(mutating.drop(raw, series, pristine, patch.id))
        bench.converge(raws)
        if alone:
            for path, content in pristine.items():
                mutating.replace(bench.site / path, content)
        return raws

    return mutate


def hunk_rows(bench: Bench, only: str) -> Iterator[Row]:
    """Each hunk of each patch, taken back alone."""
    for _, _, patch in chosen(bench, only):
        for file in patch.parsed.files:
            for hunk in file.hunks:
                name = f"{patch.id}, {Path(file.path).name} line {hunk.new_start}"

                def mutate(file: FileDiff = file, hunk: Hunk = hunk) -> list[dict[str, Any]]:
                    path = bench.site / file.path
                    mutating.replace(path, mutating.take_back(path.read_bytes(), hunk, file.hunks))
                    return bench.raws

                yield measured(bench, "hunks", name, (), "this hunk taken back", mutate)


def contract_rows(bench: Bench, only: str) -> Iterator[Row]:
    """The smallest damage to each contract. The audit must fail in the contract itself, not only in a digest."""
    for _, _, patch in chosen(bench, only):
        for contract in patch.contracts:
            yield contract_row(bench, patch.id, contract)


def contract_row(bench: Bench, patch: str, contract: dict[str, Any]) -> Row:
    """Damage what one contract relies on and look for the contract among what fails."""
    kind = next(one for one in ("call", "defines", "source") if one in contract)
    name = f"{patch}: {kind} {contract[kind]}"
    started = time.monotonic()
    try:
        path, content, damage = mutating.damage_contract(bench.environment, contract)
        with mutating.replaced({path: content}):
            caught = [one for one in bench.audit(bench.raws) if one["name"].startswith(f"{patch}: ")]
        rung, message = ("audit", sentence(caught, patch)) if caught else ("", "")
    except mutating.CannotMutateError as error:
        damage, rung, message = "none", "", str(error)
    return Row("contracts", name, "", damage, rung or NOT_CAUGHT, message, time.monotonic() - started)


def property_rows(bench: Bench, only: str) -> Iterator[Row]:
    """The smallest damage to each property of captured states; the truth rung must see it in the states themselves."""
    for damage in damages():
        if re.search(only, f"{damage.breaks}: {damage.damage}"):
            yield property_row(bench, damage)


def property_row(bench: Bench, damage: Damage) -> Row:
    """Carry out one declared damage, and ask for the cases in which it must show. Nothing but truth is asked."""
    started = time.monotonic()
    try:
        bench.sound(damage.spec)
        after = damaged(bench.site, damage.edits)
        with mutating.replaced(after):
            failed = bench.truth(damage.spec, after)
        rung, message = ("truth", sentence(failed, "")) if failed else ("", "")
    except mutating.CannotMutateError as error:
        rung, message = "", str(error)
    took = time.monotonic() - started
    return Row("properties", damage.breaks, "", damage.damage, rung or NOT_CAUGHT, message, took)


def measured(
    bench: Bench,
    group: str,
    name: str,
    faults: Iterable[object],
    damage: str,
    mutate: Mutation,
    judge: Callable[[], tuple[str, str]] | None = None,
) -> Row:
    """Carry out one mutation, judge it (by every rung where nothing else is said), and put the copy in order again."""
    started = time.monotonic()
    try:
        raws = mutate()
        rung, message = judge() if judge else bench.judge(raws, name.split(",")[0])
    except mutating.CannotMutateError as error:
        rung, message = "the series", f"a later patch builds on it, so it cannot be left out alone: {error}"
    finally:
        bench.converge(bench.raws)
    numbers, took = ", ".join(map(str, faults)), time.monotonic() - started
    return Row(group, name, numbers, damage, rung or NOT_CAUGHT, message, took)

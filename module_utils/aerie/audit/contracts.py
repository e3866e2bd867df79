"""The contracts of a series as checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.contracts.automatic import REMEDY, automatic
from ansible.module_utils.aerie.contracts.declared import ContractError, Evaluator
from ansible.module_utils.aerie.contracts.parsed_module import SourceError
from ansible.module_utils.aerie.contracts.source_tree import SourceTree

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.patching.series import Series
    from ansible.module_utils.aerie.shared.checks import Check, Checks

ENGINE = "vllm"


def check(checks: Checks, site_packages: Path, all_series: list[Series]) -> int:
    """Check every file that the series touch or add, then the contracts that their patches declare.

    Returns how many checks were added.
    """
    before = len(checks)
    evaluator = Evaluator(SourceTree(site_packages))
    for series in all_series:
        for file in sorted({*series.files, *[module.target for module in series.modules]}):
            if file.endswith(".py"):
                _file(checks, evaluator, file)
        for patch in series.patches:
            for contract in patch.contracts:
                _declared(checks, evaluator, contract, patch.id)
    return len(checks) - before


def _declared(checks: Checks, evaluator: Evaluator, contract: dict[str, Any], patch: str) -> None:
    try:
        _add(checks, evaluator.evaluate(contract, patch))
    except (SourceError, ContractError) as error:
        checks.add(f"{patch}: contract", "fail", error, "a contract that can be evaluated", REMEDY)


def _file(checks: Checks, evaluator: Evaluator, file: str) -> None:
    try:
        findings = automatic(evaluator.reading(file), (ENGINE, file.split("/")[0]))
    except FileNotFoundError:
        checks.add(f"calls in {file}", "fail", "no such file", "a file to check", REMEDY, file=file)
        return
    except SourceError as error:
        checks.add(f"calls in {file}", "fail", error, "source that can be read", REMEDY, file=file)
        return
    failed = [finding for finding in findings if finding.status == "fail"]
    _add(checks, failed)
    # Hundreds of good calls would bury the rest of a report: they are counted.
    engine = sum(ENGINE in finding.name for finding in findings)
    found = f"{len(findings)} names and calls ({engine} of {ENGINE}), {len(failed)} do not fit"
    remedy = REMEDY if failed else ""
    checks.require(f"calls in {file}", not failed, found, "each as the installed source takes it", remedy, file=file)


def _add(checks: Checks, findings: list[Check]) -> None:
    for finding in findings:
        checks.append(finding)

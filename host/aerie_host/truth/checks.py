"""The checks that one battery's report passes or fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aerie_host.shared.checks import Checks

REMEDY = "do not extract with this stack; docs/verification.md says how to narrow it down"
# Neighbouring layers must differ by this many times what rounding explains; otherwise a mix-up would stay unseen.
SEPARATION = 2.0


def add_checks(checks: Checks, label: str, report: dict[str, Any], remedy: str = REMEDY) -> None:
    """Add the checks of one battery's report."""
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
            "report a fault of Aerie: the checkpoint of this check is at fault, not the stack",
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
            "report a fault of Aerie: step or cache of this check are too large to force them",
        )

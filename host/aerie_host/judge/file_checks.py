"""Report the flaws of all files, one check for each property, and how many of the tokens are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerie_host.judge import flaws
from aerie_host.judge.sample_folder import NO_MANIFEST, REMEDY

if TYPE_CHECKING:
    from aerie_host.folder.manifest import Manifest
    from aerie_host.judge.expectation import Expectation
    from aerie_host.judge.sample_files import Totals
    from aerie_host.shared.checks import Checks


def check_files(
    checks: Checks, totals: Totals, count: int, manifest: Manifest | None, expectation: Expectation
) -> None:
    """Add one check for each property of a file."""
    for name, texts in totals.flaws.items():
        if name in flaws.OF_MANIFEST and manifest is None:
            checks.add(name, "n/a", f"{count} files", f"digests to compare with: {NO_MANIFEST}")
        else:
            checks.require(
                name,
                not texts.count and count > 0,
                texts if texts.count else f"{count} files",
                f"{count} files",
                REMEDY,
            )
    if not expectation.vocabulary:
        reason = "the model of the manifest is not on this host" if manifest else f"{NO_MANIFEST} that names the model"
        checks.add("token ids in the vocabulary", "n/a", "not known", f"the vocabulary's size: {reason}")


def check_coverage(checks: Checks, totals: Totals, manifest: Manifest | None) -> dict[str, Any]:
    """Check how many of the tokens are there, how many are trained on, and which samples are there twice."""
    tokens = sum(totals.lengths)
    data: dict[str, Any] = {}
    if manifest is None:
        checks.add("token coverage", "n/a", f"{tokens:,} tokens", f"how many there should be: {NO_MANIFEST}")
    else:
        share = data["token_coverage"] = tokens / manifest.tokens if manifest.tokens else 0.0
        text = f"{tokens:,} of {manifest.tokens:,} tokens ({share:.2%})"
        text += f"; {len(manifest.skipped)} lines gave no sample" if manifest.skipped else ""
        text += f"; {manifest.truncated} samples were cut" if manifest.truncated else ""
        checks.require("token coverage", tokens == manifest.tokens and tokens > 0, text, "all of them", REMEDY)
    share = data["mask_coverage"] = totals.trainable / tokens if tokens else 0.0
    text = f"{totals.trainable:,} of {tokens:,} tokens ({share:.2%}) are trained on"
    remedy = ""
    if totals.untrained.count or not tokens:
        status, text = "fail", f"{text}; {totals.untrained.count} samples have none: {totals.untrained}"
        remedy = "leave such samples out: training learns nothing from them"
    elif share == 1:
        status, remedy = "warn", "look at what made the masks: prompts are trained on as well"
    else:
        status = "pass"
    checks.add("mask coverage", status, text, "some in every sample, and not all", remedy)
    twins = totals.twins
    remedy = (
        "remove the repeats from the data, unless they are meant: training takes each of them" if twins.count else ""
    )
    checks.add("no sample twice", "warn" if twins.count else "pass", twins if twins.count else "none", "none", remedy)
    return data

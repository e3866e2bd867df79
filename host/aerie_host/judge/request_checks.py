"""Checks of the folder as a whole against what the caller requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aerie_host.data import data_file
from aerie_host.data.data_file import DATA, DataFile
from aerie_host.judge.sample_folder import NO_MANIFEST, REMEDY
from aerie_host.shared.refusal import UsageRefusal

if TYPE_CHECKING:
    from aerie_host.folder.manifest import Manifest
    from aerie_host.judge.expectation import Expectation
    from aerie_host.judge.request import JudgeRequest
    from aerie_host.shared.checks import Checks


def check_request(checks: Checks, manifest: Manifest | None, request: JudgeRequest, expectation: Expectation) -> None:
    """Check layers, shard and hidden size of the manifest against the request."""
    name, remedy = "the layers asked, in order", "overwrite or use another folder"
    if manifest is None:
        found = f"{expectation.count} tensors per file"
        checks.add(name, "n/a", found, f"the layers' numbers: {NO_MANIFEST}; the number of layers is checked")
    elif request.layers:
        layers = list(manifest.layers)
        checks.require(name, layers == request.layers, layers, request.layers, remedy)
    else:
        checks.add(name, "n/a", list(manifest.layers), "any: the caller asks for none")
    if request.shard and manifest is not None:
        same = request.shard == manifest.shard
        checks.require("shard", same, manifest.shard, request.shard, "use another folder for each shard")
    name, remedy = "hidden size", "look at the model's config.json"
    if request.hidden_size and manifest is not None:
        same = manifest.hidden_size == request.hidden_size
        checks.require(name, same, manifest.hidden_size, request.hidden_size, remedy)
    elif not request.hidden_size:
        checks.add(name, "n/a", expectation.hidden_size, "the same in all files; the caller asks for none")


def check_count(checks: Checks, manifest: Manifest | None, request: JudgeRequest) -> None:
    """Check that every row of the data has its sample or its reason; the rows are counted in the data file itself."""
    name = "as many samples as asked"
    if manifest is None:
        checks.add(name, "n/a", "not known", f"the data's lines: {NO_MANIFEST} that says which they are")
        return
    text = f"{len(manifest.samples)} written, {len(manifest.skipped)} skipped"
    if not request.data:
        checks.add(name, "n/a", text, "the data's lines: the caller names no data")
        return
    path = Path(request.data)
    if not path.exists():
        checks.add(name, "n/a", text, f"the data's lines: {path} is not on this host")
        return
    shard = request.shard or manifest.shard
    try:
        rows = DataFile(path).read(shard)
        wanted = sum(1 for row in rows if not request.max_samples or row.place < request.max_samples)
    except OSError as error:
        found = f"{path} cannot be read: {error.strerror}"
        raise UsageRefusal(DATA, found, "one file of conversations", data_file.REMEDY) from error
    got = len(manifest.samples) + len(manifest.skipped)
    checks.require(name, got == wanted, text, wanted, REMEDY)

"""What training reads from an extracted folder, through the code of speculators."""

from __future__ import annotations

import json

import pytest
import torch

from aerie_host.ready import command as ready_command
from aerie_host.shared.durable import write_json
from aerie_host.spec import Spec
from tests.refusals import refused, usage_refused

pytest.importorskip("speculators")


def ready(extraction, **more):
    spec = {"output": str(extraction.output), "max_length": 128, "steps": 0, **more}
    return ready_command.run(Spec(spec, "ready"), False)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_an_extracted_folder_is_ready(extraction, dtype):
    extraction.run()
    outcome = ready(extraction, dtype=dtype)
    assert not outcome.failed, outcome.as_document()
    assert {check["name"]: check["found"] for check in outcome.checks.as_list()}[
        "dtype in training"
    ] == f"torch.{dtype}"


def test_one_step_cannot_show_a_falling_loss(extraction):
    with usage_refused(match="at least 2 steps"):
        ready(extraction, steps=1)


def edit(extraction, change, name="data_1.pt"):
    path = extraction.output / name
    data = torch.load(path, weights_only=True)
    change(data)
    torch.save(data, path)


def test_states_of_another_dtype_on_disk_are_seen(extraction):
    extraction.run()
    edit(extraction, lambda data: data.update(hidden_states=[states.float() for states in data["hidden_states"]]))
    failed = {check.name: check.found for check in ready(extraction).checks.failed}
    assert failed == {"dtype on disk": "data_1.pt"}


def test_files_that_training_would_take_or_miss_are_named(extraction):
    extraction.run()
    # The dataset itself would die of it.
    torch.save({}, extraction.output / "stray.pt")
    (extraction.output / "data_2.pt").unlink()
    failed = {check.name: check.found for check in ready(extraction).checks.failed}
    assert failed == {"files that training finds": "7; missing there or here: data_2.pt; stray.pt"}


def test_a_single_sample_leaves_none_for_training(extraction):
    extraction.write_data(["Yes."])
    extraction.run()
    (failed,) = ready(extraction).checks.failed
    assert (failed.name, failed.found) == ("split", "0 for training, 1 for validation")
    assert "extract more samples" in failed.remedy


def test_true_lengths_and_not_those_guessed_from_file_sizes(extraction):
    extraction.write_data(["Yes.", "In Norway " * 25])
    extraction.run()
    outcome = ready(extraction)
    assert not outcome.failed
    lengths = [item["length"] for item in json.loads(extraction.folder.manifest.read_text())["samples"]]
    assert lengths[1] > 1.5 * lengths[0]


def test_without_an_extraction_nothing_is_ready(extraction):
    with refused(match="extract first"):
        ready(extraction)
    extraction.folder.create()
    write_json(extraction.folder.manifest, {"version": 1, "model": {}, "samples": [], "hidden_size": 64, "layers": [0]})
    with refused(match="finds no file"):
        ready(extraction)

"""The judge on what was really extracted, and against Transformers: wrong layers, rows and samples are named."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from aerie_host.checkpoint.reference_forward import ReferenceModel
from aerie_host.folder.record import SampleRecord
from aerie_host.judge import command as judge
from aerie_host.judge import flaws, reference
from aerie_host.shared.digests import sha256_file
from aerie_host.shared.durable import write_json
from aerie_host.spec import Spec
from tests.ml_environment.conftest import ANSWERS, LAYERS
from tests.ml_environment.made_folder import failures
from tests.refusals import refused


def judged(extraction, **more):
    return judge.run(Spec({"output": str(extraction.output), **more}, "judge"), False)


@pytest.fixture
def damaged(extraction):
    """Extract, change one file's content, and let manifest and digest agree with it: only the content is wrong."""
    extraction.run()

    def change(edit, name="data_1.pt", **manifest_changes):
        path = extraction.output / name
        data = torch.load(path, weights_only=True)
        data = edit(data) or data
        torch.save(data, path)
        manifest = json.loads(extraction.folder.manifest.read_text())
        for item in manifest["samples"]:
            if item["file"] == name:
                item.update(sha256=sha256_file(path), bytes=path.stat().st_size, **manifest_changes)
        write_json(extraction.folder.manifest, manifest)
        return failures(judged(extraction))

    return change


def test_what_was_extracted_passes_with_everything_that_can_be_asked(extraction):
    extraction.run()
    outcome = judged(extraction, layer_ids=LAYERS, hidden_size=64, data=str(extraction.data), reference_samples=3)
    assert failures(outcome) == {}
    assert not outcome.failed
    names = {check["name"] for check in outcome.checks.as_list()}
    assert set(flaws.PROPERTIES) <= names
    assert {f"layer {layer} equals Transformers" for layer in LAYERS} <= names
    assert outcome.data["reference"]["files"] == 3
    assert 0 < outcome.data["largest_difference"] < 0.02


def test_what_was_asked_is_compared_with_what_is_there(extraction):
    extraction.run()
    extraction.write_data([*ANSWERS, "one more"])
    found = failures(judged(extraction, layer_ids=[0, 4, 2, 5], hidden_size=128, data=str(extraction.data)))
    assert found["the layers asked, in order"] == "[0, 2, 4, 5]"
    assert found["hidden size"] == "64"
    assert found["as many samples as asked"] == "7 written, 0 skipped"
    assert failures(judged(extraction, data=str(extraction.data), max_samples=7)) == {}


def test_an_unfinished_extraction_is_no_pass(extraction):
    extraction.run()
    extraction.folder.manifest.unlink()
    with refused(match="did not finish"):
        judged(extraction)


def shifted(data, model):
    """The first two layers' states one layer further, computed from the same tokens."""
    layers = [layer + 1 for layer in LAYERS[:2]] + LAYERS[2:]
    forward = ReferenceModel(model, torch.bfloat16).forward(data["input_ids"].tolist())
    data["hidden_states"] = [forward.layers[layer].bfloat16() for layer in layers]


def reference_failures(extraction, damaged, edit):
    damaged(edit)
    return failures(judged(extraction, reference_samples=len(ANSWERS)))


def test_states_of_the_next_layer_are_said_to_be_off_by_one(damaged, extraction, model):
    found = reference_failures(extraction, damaged, lambda data: shifted(data, model))
    assert (
        found["layer 2 equals Transformers"]
        == "data_1.pt, layer 2: saved as layer 2, equals the output of layer 3: off by one"
    )
    assert "layer 5 equals Transformers" not in found


def test_states_after_the_final_norm_are_told_from_those_before(damaged, extraction, model):
    def normed(data):
        from transformers import AutoModelForCausalLM

        made = AutoModelForCausalLM.from_pretrained(model)
        data["hidden_states"][3] = made.model.norm(data["hidden_states"][3].float()).detach().bfloat16()

    found = reference_failures(extraction, damaged, normed)
    assert (
        found["layer 5 equals Transformers"]
        == "data_1.pt, layer 5: saved as layer 5, equals the output of the final norm"
    )


def test_one_row_of_another_token_is_found_and_named(damaged, extraction):
    def swap(data):
        data["hidden_states"][2][7] = data["hidden_states"][2][8]

    found = reference_failures(extraction, damaged, swap)
    assert list(found) == ["layer 4 equals Transformers"]
    assert found["layer 4 equals Transformers"].startswith("data_1.pt, layer 4: row 7 differs by")


def test_rows_of_another_sample_are_found(damaged, extraction):
    def roll(data):
        data["hidden_states"] = [states.roll(1, dims=0) for states in data["hidden_states"]]

    found = reference_failures(extraction, damaged, roll)
    assert len(found) == 4


def test_only_the_model_of_the_manifest_is_compared_with(extraction, model, tmp_path):
    extraction.run()
    other = tmp_path / "other"
    shutil.copytree(model, other)
    # The caller's inventory may name another model than the one that the folder was made with.
    assert "reference" in judged(extraction, reference_samples=1, model=str(other)).data
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "rope_theta": 77.0}))
    manifest = json.loads(extraction.folder.manifest.read_text())
    write_json(extraction.folder.manifest, {**manifest, "model": {**manifest["model"], "path": "/not/here"}})
    outcome = judged(extraction, reference_samples=1, model=str(other))
    assert "reference" not in outcome.data
    wanted = {check["name"]: check["wanted"] for check in outcome.checks.as_list() if check["status"] == "n/a"}
    assert wanted[reference.CHECK] == f"{other} is not the model of the manifest (another digest)"
    assert not outcome.failed


def test_reference_files_span_all_lengths():
    lengths = [5, 1, 9, 7, 3]
    records = [SampleRecord(n, n + 1, "", f"data_{n}.pt", length, 1, 1, "", "") for n, length in enumerate(lengths)]
    assert [record.length for record in reference.choose(records, 3)] == [1, 5, 9]
    assert [record.length for record in reference.choose(records, 1)] == [9]
    assert len(reference.choose(records, 50)) == 5

"""The judge against every kind of damage: each is found, and named by file, layer and row."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from aerie_host import judge, sample_file
from aerie_host.files import sha256_file, write_json
from aerie_host.outcome import JobError
from aerie_host.spec import Spec
from tests.host.conftest import ANSWERS, LAYERS
from tests.host.transformers_generator import TransformersGenerator


def judged(extraction, **more):
    return judge.run(Spec({"output": str(extraction.output), **more}, "judge"), False)


def failures(outcome):
    return {check["name"]: check["found"] for check in outcome.checks.failed}


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
    assert set(sample_file.PROPERTIES) <= names
    assert {f"layer {layer} equals Transformers" for layer in LAYERS} <= names
    assert outcome.data["reference"]["files"] == 3
    assert 0 < outcome.data["largest_difference"] < 0.02


def rows(layer, row):
    def edit(value):
        def change(data):
            data["hidden_states"][layer][row] = value

        return change

    return edit


def drop_layer(data):
    del data["hidden_states"][2]


def as_views(data):
    whole = torch.cat([data["hidden_states"][0]] * 3)
    data["hidden_states"][0] = whole[: len(data["input_ids"])]


def swap_key(data):
    data["hidden_state"] = data.pop("hidden_states")


def extra_key(data):
    data["extra"] = torch.zeros(1)


def floats(data):
    data["hidden_states"][1] = data["hidden_states"][1].float()


def short_mask(data):
    data["loss_mask"] = data["loss_mask"][:-1]


def short_states(data):
    data["hidden_states"][3] = data["hidden_states"][3][:-1].clone()


def narrow(data):
    data["hidden_states"][3] = data["hidden_states"][3][:, :32].clone()


def same_layers(data):
    data["hidden_states"][2] = data["hidden_states"][0].clone()


def all_rows_equal(data):
    data["hidden_states"][0] = data["hidden_states"][0][:1].repeat(len(data["input_ids"]), 1)


def int32(data):
    data["input_ids"] = data["input_ids"].int()


def stacked(data):
    data["hidden_states"] = torch.stack(data["hidden_states"])


def mask_of_twos(data):
    data["loss_mask"] = data["loss_mask"] * 2


def no_mask(data):
    data["loss_mask"] = torch.zeros_like(data["loss_mask"])


def one_more(data):
    data["loss_mask"][0] = 1


def a_list(data):
    return list(data.values())


DAMAGES = [
    (rows(1, 3)(float("nan")), sample_file.FINITE, "data_1.pt: layer 2, row 3: not finite (1 rows)"),
    (rows(3, 0)(float("inf")), sample_file.FINITE, "data_1.pt: layer 5, row 0: not finite (1 rows)"),
    (rows(0, 2)(0.0), sample_file.VARIED, "data_1.pt: layer 0, row 2: one value throughout (1 rows)"),
    (all_rows_equal, sample_file.VARIED, "rows are equal"),
    (same_layers, sample_file.DISTINCT, "layers 0 and 4: equal in"),
    (drop_layer, sample_file.LAYERS, "3 layers, 4 were asked: [0, 2, 4, 5]"),
    (as_views, sample_file.OWN_ROWS, "layer 0: stores"),
    (swap_key, sample_file.FORM, "keys ['hidden_state', 'input_ids', 'loss_mask'], wanted"),
    (extra_key, sample_file.FORM, "keys ['extra', "),
    (stacked, sample_file.FORM, "hidden_states is Tensor, wanted a list of tensors"),
    (int32, sample_file.FORM, "input_ids is torch.int32"),
    (a_list, sample_file.READABLE, "holds a list, wanted a dict"),
    (floats, sample_file.DTYPES, "layer 2: torch.float32, wanted torch.bfloat16"),
    (short_mask, sample_file.LENGTHS, "loss_mask has"),
    (short_states, sample_file.SHAPES, "layer 5: shape ["),
    (narrow, sample_file.SHAPES, ", 32], wanted ["),
    (mask_of_twos, sample_file.MASK, "holds other values than 0 and 1"),
    (no_mask, sample_file.MASK, "has no trainable token"),
    (one_more, sample_file.MASK, "trainable tokens, the manifest says"),
]


@pytest.mark.parametrize(("edit", "name", "text"), DAMAGES, ids=[f"{n}-{d[1]}" for n, d in enumerate(DAMAGES)])
def test_damage_inside_a_file_is_named(damaged, edit, name, text):
    found = damaged(edit)
    assert list(found) == [name]
    assert found[name].startswith("data_1.pt: ")
    assert text in found[name]


def test_three_files_one_clean_two_not_finite(damaged, extraction):
    damaged(rows(1, 3)(float("nan")), "data_1.pt")
    found = damaged(rows(3, 0)(float("inf")), "data_4.pt")
    assert "data_1.pt: layer 2, row 3" in found[sample_file.FINITE]
    assert "data_4.pt: layer 5, row 0" in found[sample_file.FINITE]
    assert "data_0.pt" not in found[sample_file.FINITE]


def test_an_empty_sample_is_rejected(damaged):
    def empty(data):
        data["input_ids"], data["loss_mask"] = data["input_ids"][:0].clone(), data["loss_mask"][:0].clone()
        data["hidden_states"] = [states[:0].clone() for states in data["hidden_states"]]

    assert "has no token" in damaged(empty, length=0, trainable=0)[sample_file.LENGTHS]


def test_damage_to_the_folder_is_named(extraction):
    extraction.run()
    path = extraction.output
    (path / "data_0.pt").unlink()
    (path / "data_1.pt").write_bytes((path / "data_1.pt").read_bytes()[:1000])
    (path / "data_2.pt").write_bytes(b"not a zip file")
    (path / "sub").mkdir()
    shutil.copy(path / "data_3.pt", path / "sub/data_77.pt")
    found = failures(judged(extraction))
    assert "6 of 7 files, missing: data_0.pt" in found["every sample has its file"]
    assert found["no other files for training"] == "sub/data_77.pt"
    assert "data_1.pt: differs from the manifest; data_2.pt: differs" in found[sample_file.DIGEST]
    assert "data_1.pt: cannot be loaded" in found[sample_file.READABLE]
    assert "data_2.pt: cannot be loaded" in found[sample_file.READABLE]


def test_files_that_would_run_code_are_not_loaded(damaged, tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    found = damaged(lambda _data: {"input_ids": Trap()})
    assert "cannot be loaded" in found[sample_file.READABLE]
    assert not (tmp_path / "ran").exists()


def test_what_was_asked_is_compared_with_what_is_there(extraction):
    extraction.run()
    extraction.write_data([*ANSWERS, "one more"])
    found = failures(judged(extraction, layer_ids=[0, 4, 2, 5], hidden_size=128, data=str(extraction.data)))
    assert found["the layers asked, in order"] == "[0, 2, 4, 5]"
    assert found["hidden size"] == "64"
    assert found["as many samples as asked"] == "7 written, 0 skipped"
    assert failures(judged(extraction, data=str(extraction.data), max_samples=7)) == {}


def test_an_unfinished_extraction_is_no_pass(extraction):
    with pytest.raises(JobError, match="did not finish"):
        judged(extraction)
    extraction.run()
    extraction.folder.manifest.write_text("{}")
    with pytest.raises(JobError, match="no manifest of this program"):
        judged(extraction)
    write_json(extraction.folder.manifest, {"samples": [], "layers": LAYERS, "hidden_size": 64, "model": {"path": "x"}})
    assert judged(extraction).failed


def shifted(data, model):
    """The first two layers' states one layer further, computed from the same tokens."""
    layers = [layer + 1 for layer in LAYERS[:2]] + LAYERS[2:]
    results = TransformersGenerator(str(model), layers).generate([data["input_ids"].tolist()])
    data["hidden_states"] = [states.clone() for states in results[0]["hidden_states"]]


def reference_failures(extraction, damaged, edit):
    damaged(edit)
    return failures(judged(extraction, reference_samples=len(ANSWERS)))


def test_states_of_the_next_layer_are_said_to_be_off_by_one(damaged, extraction, model):
    found = reference_failures(extraction, damaged, lambda data: shifted(data, model))
    assert (
        found["layer 2 equals Transformers"]
        == "data_1.pt, layer 2: saved as layer 2, nearest to the output of layer 3: off by one"
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
        == "data_1.pt, layer 5: saved as layer 5, nearest to the output of the final norm"
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


def test_reference_files_span_all_lengths():
    from aerie_host.sample_file import Expected

    files = [Expected(f"data_{n}.pt", length, 1, "", (0,), 4) for n, length in enumerate([5, 1, 9, 7, 3])]
    assert [one.length for one in judge.choose(files, 3)] == [1, 5, 9]
    assert [one.length for one in judge.choose(files, 1)] == [9]
    assert len(judge.choose(files, 50)) == 5

"""Extraction end to end: what is written, what a second run does, and what survives damage."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from tests.ml_environment.conftest import ANSWERS, LAYERS
from tests.ml_environment.models import checkpoint
from tests.refusals import refused, usage_refused

ALL = {f"data_{n}.pt" for n in range(len(ANSWERS))}


def test_files_manifest_and_report(extraction):
    outcome = extraction.run()
    assert not outcome.failed
    assert outcome.changed
    assert set(extraction.digests()) == ALL
    manifest = json.loads((extraction.output / "manifest.json").read_text())
    assert manifest["layers"] == LAYERS
    assert manifest["convention"] == "output of decoder layer id (0-based), update plus residual, before the final norm"
    assert (manifest["stack"], manifest["lock"], manifest["series"]) == ("test", "l", "s")
    for item in manifest["samples"]:
        data = torch.load(extraction.output / item["file"], weights_only=True)
        assert list(data) == ["input_ids", "hidden_states", "loss_mask"]
        assert len(data["input_ids"]) == item["length"]
        assert int(data["loss_mask"].sum()) == item["trainable"]
        assert [tuple(states.shape) for states in data["hidden_states"]] == [(item["length"], 64)] * 4
        assert {states.dtype for states in data["hidden_states"]} == {torch.bfloat16}
    assert outcome.data["tokens"] == sum(item["length"] for item in manifest["samples"])
    steps = extraction.loads[0].steps
    assert all(rows[-1].end == 150 for rows in steps[:-1])
    assert any(rows.position for step in steps for rows in step), "no sample was spread over steps"


def test_the_states_are_the_models_whatever_steps_and_writers_did_with_them(extraction):
    extraction.run()
    engine = extraction.loads[0]
    for name in ALL:
        data = torch.load(extraction.output / name, weights_only=True, mmap=True)
        for written, wanted in zip(data["hidden_states"], engine._states(data["input_ids"].tolist()), strict=True):
            assert torch.equal(written, wanted)


def test_a_file_holds_its_own_rows_and_not_the_batch_they_were_cut_from(extraction):
    extraction.write_data(["Yes.", "In Norway " * 60])
    extraction.run(token_budget=4000, max_length=3000)
    item = json.loads((extraction.output / "manifest.json").read_text())["samples"][0]
    rows = 4 * item["length"] * 64 * 2
    assert [len(step) for step in extraction.loads[0].steps] == [2]
    assert item["bytes"] <= 1.1 * (rows + 16 * item["length"]) + 4096


def test_a_second_run_finds_nothing_to_do_without_loading_anything(extraction):
    extraction.run()
    before = extraction.digests()
    for check in (True, False):
        outcome = extraction.run(check=check)
        assert (outcome.changed, outcome.failed) == (False, False)
        assert "nothing to extract" in outcome.message
    assert len(extraction.loads) == 1
    assert extraction.digests() == before


def test_check_mode_writes_nothing(extraction):
    outcome = extraction.run(check=True)
    assert outcome.changed
    # What it looked at counts as checked, so that a run in check mode has a verdict.
    assert [check["status"] for check in outcome.checks.as_list()] == ["pass", "n/a"]
    assert not extraction.output.exists()


def test_damage_is_mended_and_what_was_whole_stays(extraction):
    extraction.run()
    before = extraction.digests()
    path = extraction.output
    (path / "data_1.pt").unlink()
    # As good as missing, and replaced.
    (path / "data_1.pt").symlink_to("nowhere")
    (path / "data_2.pt").write_bytes((path / "data_2.pt").read_bytes()[:-100])
    content = bytearray((path / "data_3.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (path / "data_3.pt").write_bytes(content)
    (extraction.folder.temporary / "data_4.partial").write_bytes(b"half")
    outcome = extraction.run()
    after = extraction.digests()
    assert outcome.data["redone"] == {"file altered": 1, "file missing": 1, "file of another size": 1}
    assert (outcome.data["extracted"], outcome.data["kept"], outcome.data["leftovers_removed"]) == (3, 4, 1)
    assert {name: value[0] for name, value in after.items()} == {name: value[0] for name, value in before.items()}
    assert [after[n] == before[n] for n in sorted(ALL)] == [True, False, False, False, True, True, True]
    assert not list(extraction.folder.temporary.iterdir())
    assert extraction.run().data["nothing_to_do"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"layer_ids": [0, 2, 3, 5]}, r"layers \(\[0, 2, 4, 5\] -> \[0, 2, 3, 5\]\)"),
        ({"max_length": 399}, "samples"),
        ({"identity": {"stack": "other", "lock": "l", "series": "s"}}, "stack"),
        ({"identity": {"stack": "test", "lock": "l", "series": "t"}}, r"series \(s -> t\)"),
        ("data", "data"),
        ("model", "model"),
    ],
)
def test_other_inputs_are_refused_by_name_and_nothing_is_touched(extraction, tmp_path, change, named):
    extraction.run()
    before = extraction.digests()
    if change == "data":
        extraction.write_data([*ANSWERS[:-1], "another"])
        change = {}
    elif change == "model":
        shutil.copytree(extraction.spec["model"], tmp_path / "model")
        weights = tmp_path / "model/model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        change = {"model": str(tmp_path / "model")}
    for check in (True, False):
        with refused(match=f"changed: {named}"):
            extraction.run(check=check, **change)
    assert extraction.digests() == before
    outcome = extraction.run(overwrite=True, **change)
    assert (outcome.data["extracted"], outcome.data["overwritten"]) == (len(ANSWERS), len(ANSWERS))


def test_foreign_files_stop_the_job_and_stay(extraction):
    extraction.run()
    (extraction.output / "data_99.pt").write_bytes(b"mine")
    with refused(match=r"not its samples: data_99\.pt"):
        extraction.run()
    assert (extraction.output / "data_99.pt").read_bytes() == b"mine"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_the_name_of_a_sample_stops_the_job_before_the_model_is_loaded(extraction, overwrite):
    (extraction.output / "data_3.pt" / "mine").mkdir(parents=True)
    with refused(match=r"holds folders that have names of samples: data_3\.pt; .*move them away"):
        extraction.run(overwrite=overwrite)
    assert extraction.loads == []
    assert (extraction.output / "data_3.pt" / "mine").is_dir()


def lines_too_long(extraction):
    return {"max_length": 20}, "samples are too long"


def a_broken_line(extraction):
    extraction.write_data(ANSWERS, extra="{")
    return {}, "give no sample"


def a_foreign_file(extraction):
    (extraction.output / "notes.pt").write_bytes(b"mine")
    return {}, r"not its samples: notes\.pt"


def a_folder_in_the_way(extraction):
    (extraction.output / "data_99.pt").mkdir()
    return {}, r"names of samples: data_99\.pt"


def metrics_that_cannot_be_written(extraction):
    return {"prometheus_file": "/nowhere/aerie.prom"}, "cannot be written"


@pytest.mark.parametrize(
    "wrong", [lines_too_long, a_broken_line, a_foreign_file, a_folder_in_the_way, metrics_that_cannot_be_written]
)
def test_samples_are_not_removed_for_others_that_cannot_be_made(extraction, wrong):
    extraction.run()
    manifest, before = extraction.folder.manifest.read_bytes(), extraction.digests()
    change, message = wrong(extraction)
    with refused(match=message):
        extraction.run(overwrite=True, **change)
    assert extraction.digests().items() >= before.items()
    assert extraction.folder.manifest.read_bytes() == manifest


def nan(engine):
    engine.change_states = lambda states: states[1].__setitem__((3, 5), float("nan"))


def infinite(engine):
    engine.change_states = lambda states: states[-1].__setitem__((0, 0), float("-inf"))


def a_step_lost(engine):
    engine.change_rows = lambda rows: rows if rows[0].position == 0 else []


def a_row_lost(engine):
    engine.change_rows = lambda rows: [row._replace(position=row.position + (row.position > 0)) for row in rows]


def rows_of_another_place(engine):
    engine.change_rows = lambda rows: [row._replace(position=row.position * 1000) for row in rows]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (nan, r"sample \d+ \(line \d+\), layer 2: not finite at position 3"),
        (infinite, r"layer 5: not finite at position 0"),
        (a_step_lost, r"not all of their positions came back|positions \d+ to \d+ came after"),
        (a_row_lost, r"not all of their positions came back|positions \d+ to \d+ came after"),
        (rows_of_another_place, r"not all of their positions came back|positions \d+ to \d+ came after"),
    ],
)
def test_a_wrong_state_never_reaches_the_disk(extraction, change, message):
    # Every sample is longer than half a step: the second is spread over two.
    extraction.write_data([ANSWERS[4]] * 2)
    original = extraction.engine

    def broken(job):
        engine = original(job)
        change(engine)
        return engine

    extraction.engine = broken
    with refused(match=message):
        extraction.run(token_budget=150)
    # Where rows are lost the first sample, of one step, is right, and may be on disk by then.
    assert set(extraction.digests()) <= (set() if change in (nan, infinite) else {"data_0.pt"})
    assert not extraction.folder.manifest.exists()


def test_lines_without_a_sample_fail_the_job_unless_allowed(extraction):
    extraction.write_data(ANSWERS, extra='{"messages": [')
    with refused(match=r"1 lines give no sample, at most 0 may: line 8: broken JSON"):
        extraction.run()
    assert extraction.digests() == {}
    outcome = extraction.run(max_skipped=1)
    assert not outcome.failed
    assert len(extraction.digests()) == len(ANSWERS)
    assert (
        "line 8" in json.loads(extraction.folder.manifest.read_text())["skipped"][0]["reason"]
        or outcome.data["skipped"]
    )


@pytest.mark.parametrize("check", [True, False])
def test_an_output_that_is_a_file(extraction, check):
    extraction.output.write_text("a file")
    with refused(match="is a file"):
        extraction.run(check=check)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_ids": [0, 6]}, r"layers \[6\] do not exist; wanted layers from 0 to 5"),
        ({"layer_ids": [5, 5]}, "names a layer twice"),
        ({"layer_ids": [-1]}, "do not exist"),
        ({"max_length": 1}, "at least 2"),
        ({"writers": -1}, "'writers' is -1; wanted at least 0"),
        ({"token_budget": 0}, "'token_budget' is 0; wanted at least 1"),
        ({"batch_timeout": 0}, "'batch_timeout' is 0.0; wanted at least 0.1"),
        ({"on_too_long": "cut"}, "one of error, truncate, skip"),
        ({"data": "/nowhere.jsonl"}, "is not there"),
        ({"output": "{model}"}, "wanted a folder outside that of the model"),
        ({"output": "{model}/../{name}/states"}, "wanted a folder outside that of the model"),
    ],
)
def test_senseless_requests_are_refused(extraction, change, message):
    if "output" in change:
        model = extraction.spec["model"]
        change = {"output": change["output"].format(model=model, name=model.rpartition("/")[2])}
    with usage_refused(match=message):
        extraction.run(check=True, **change)


def without(name):
    return lambda model: (model / name).unlink()


def cut_off(model):
    path = model / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def a_pointer(model):
    (model / "model-00001-of-00002.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
    )


def no_header(model):
    (model / "model-00001-of-00002.safetensors").write_bytes((9).to_bytes(8, "little") + b"no header")


def no_weights(model):
    for path in model.glob("model*"):
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            without("model-00001-of-00002.safetensors"),
            r"lacks 1 of the 2 weight files in .*: model-00001-of-00002\.",
        ),
        (no_weights, r"has no weights; wanted files \*\.safetensors or "),
        (cut_off, r"00002\.safetensors has \d+ bytes, its header names \d+; .* fetch the model again"),
        (a_pointer, r"00001-of-00002\.safetensors is a pointer of Git LFS; .* fetch the model again"),
        (no_header, r"is no safetensors file: its header cannot be read; .* fetch the model again"),
    ],
)
def test_a_model_that_is_not_all_there_is_refused_before_anything_is_read(extraction, tmp_path, damage, message):
    model = checkpoint(tmp_path / "sharded", shard="300KB")
    extraction.run(check=True, model=str(model))
    damage(model)
    for check in (True, False):
        with usage_refused(match=message):
            extraction.run(check=check, model=str(model))
    assert not extraction.output.exists()


def test_a_tokenizer_that_cannot_be_loaded_is_named(extraction, tmp_path):
    model = shutil.copytree(extraction.spec["model"], tmp_path / "bare")
    (model / "tokenizer.json").write_text("{")
    with refused(match=r"tokenizer: that in .*bare cannot be loaded: Exc.*fetch the model again"):
        extraction.run(model=str(model))


def test_the_default_layers_of_a_small_model_are_refused_where_they_collide(extraction):
    # 2, 6 // 2, 6 - 3 and 5: layer 3 twice.
    with usage_refused(match=r"\[2, 3, 3, 5\], the default for a model with 6 layers"):
        extraction.run(check=True, layer_ids=[])

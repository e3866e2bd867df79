"""Samples as safetensors: the same tensors as in a .pt file, kept, resumed and judged as those are."""

from __future__ import annotations

import hashlib
import json

import torch
from safetensors import safe_open

from aerie_host.folder import sample_file
from aerie_host.folder.layout import Folder
from aerie_host.judge import command as judge
from aerie_host.ready import command as ready_command
from aerie_host.shared.model_config import CONVENTION
from aerie_host.spec import Spec
from tests.ml_environment.conftest import ANSWERS, LAYERS
from tests.refusals import refused, usage_refused

ALL = {f"data_{n}.safetensors" for n in range(len(ANSWERS))}


def judged(extraction, **changes):
    given = {"output": str(extraction.output), "data": str(extraction.data), "layer_ids": LAYERS, **changes}
    return judge.run(Spec(given, "judge"), False)


def test_both_formats_hold_the_same_sample(extraction, tmp_path):
    extraction.run()
    other = tmp_path / "other"
    outcome = extraction.run(output=str(other), file_format="safetensors")
    assert not outcome.failed
    assert {path.name for path in other.iterdir() if path.name.startswith("data_")} == ALL
    for path in Folder(other).training_files():
        with safe_open(path, framework="pt") as file:
            assert sorted(file.keys()) == [*(f"hidden_states.{n:03}" for n in range(4)), "input_ids", "loss_mask"]
            assert file.metadata() == {"layers": json.dumps(LAYERS), "convention": CONVENTION}
        ours = sample_file.load(path)
        theirs = torch.load(extraction.output / f"{path.stem}.pt", weights_only=True)
        assert set(ours) == set(theirs)
        for name in ("input_ids", "loss_mask"):
            assert torch.equal(ours[name], theirs[name])
            assert ours[name].dtype == torch.int64
        assert all(torch.equal(a, b) for a, b in zip(ours["hidden_states"], theirs["hidden_states"], strict=True))
        assert {states.dtype for states in ours["hidden_states"]} == {torch.bfloat16}
    item = json.loads((other / "manifest.json").read_text())["samples"][0]
    content = (other / item["file"]).read_bytes()
    assert (item["bytes"], item["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())


def test_layers_beyond_ten_stay_in_order(tmp_path):
    from aerie_host.folder import safetensors_file

    states = [torch.full((3, 2), float(number)).bfloat16() for number in range(12)]
    data = {"input_ids": torch.arange(3), "loss_mask": torch.ones(3, dtype=torch.long), "hidden_states": states}
    with (tmp_path / "a.safetensors").open("wb") as stream:
        safetensors_file.save(data, stream, list(range(12)))
    found = sample_file.load(tmp_path / "a.safetensors")["hidden_states"]
    assert [int(layer[0, 0]) for layer in found] == list(range(12))


def test_resume_keeps_and_mends_safetensors(extraction):
    extraction.spec["file_format"] = "safetensors"
    extraction.run()
    extraction.folder = Folder(extraction.output)
    before = extraction.digests()
    assert set(before) == ALL
    assert extraction.run().data["nothing_to_do"]
    path = extraction.output / "data_2.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    (extraction.output / "data_3.safetensors").unlink()
    outcome = extraction.run()
    assert outcome.data["redone"] == {"file missing": 1, "file of another size": 1}
    after = extraction.digests()
    assert {name: digest for name, (digest, _) in after.items()} == {
        name: digest for name, (digest, _) in before.items()
    }
    assert [name for name in sorted(ALL) if after[name] != before[name]] == ["data_2.safetensors", "data_3.safetensors"]


def test_another_format_in_the_same_folder_is_refused_and_replaced_only_when_told(extraction):
    extraction.run()
    with refused(match=r"changed: files \(pt -> safetensors\)"):
        extraction.run(file_format="safetensors")
    outcome = extraction.run(file_format="safetensors", overwrite=True)
    assert outcome.data["overwritten"] == len(ANSWERS)
    assert {path.name for path in extraction.output.iterdir() if path.name.startswith("data_")} == ALL
    with usage_refused(match="wanted one of pt, safetensors"):
        extraction.run(file_format="npz")


def test_files_that_training_would_read_are_foreign_among_safetensors_too(extraction):
    extraction.spec["file_format"] = "safetensors"
    extraction.run()
    for name in ("data_99.safetensors", "notes.pt"):
        (extraction.output / name).write_bytes(b"mine")
        with refused(match=f"not its samples: {name}"):
            extraction.run()
        (extraction.output / name).unlink()


def test_safetensors_are_judged_and_compared_with_transformers(extraction):
    extraction.run(file_format="safetensors")
    outcome = judged(extraction, reference_samples=2)
    assert not outcome.failed, outcome.checks.failed
    assert outcome.data["reference"]["files"] == 2
    path = extraction.output / "data_1.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 64
    path.write_bytes(content)
    assert "data_1.safetensors: sha256" in str(judged(extraction).checks.failed)
    path.write_bytes(content[:200])
    assert "is no whole safetensors file" in str(judged(extraction).checks.failed)


def test_readiness_says_that_training_does_not_read_them(extraction):
    extraction.run(file_format="safetensors")
    outcome = ready_command.run(Spec({"output": str(extraction.output), "max_length": 400}, "ready"), False)
    (check,) = outcome.checks.as_list()
    assert (check["status"], check["found"]) == ("n/a", "safetensors files")
    assert "sample_file.load" in check["remedy"]

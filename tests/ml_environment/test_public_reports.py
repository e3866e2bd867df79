"""Reports by people who met these faults in public, from the data to what training reads."""

from __future__ import annotations

import json

import pytest
import torch

from aerie_host.ready import command as ready_command
from aerie_host.spec import Spec
from tests.ml_environment.conftest import LAYERS
from tests.ml_environment.models import checkpoint
from tests.ml_environment.transformers_engine import TransformersEngine
from tests.refusals import refused

# Three turns and an answer to each.
CHAT = [
    {"role": role, "content": content}
    for question, answer in (
        ("Where is Rome?", "In Italy, in the middle."),
        ("And Oslo?", "In Norway: in the south."),
        ("Rome? Oslo?", "In Italy. In Norway."),
    )
    for role, content in (("user", question), ("assistant", answer))
]


def ready(extraction, **more):
    pytest.importorskip("speculators")
    spec = {"output": str(extraction.output), "max_length": 128, "model": extraction.spec["model"], "steps": 2, **more}
    return ready_command.run(Spec(spec, "ready"), False)


def cached(states):
    known = {}

    def call(self, ids):
        if tuple(ids) not in known:
            known[tuple(ids)] = states(self, ids)
        return known[tuple(ids)]

    return call


def write(extraction, rows):
    extraction.data.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_br_16_one_two_and_three_draft_layers_learn_from_four_samples(extraction):
    extraction.write_data(["Yes.", "In Italy. " * 6, "No.", "Rome? Oslo!"])
    extraction.run()
    outcome = ready(extraction, draft_layers=[1, 2, 3])
    assert not outcome.failed, outcome.as_document()
    assert [one["layers"] for one in outcome.data["drafts"]] == [1, 2, 3]
    for one in outcome.data["drafts"]:
        assert torch.tensor(one["losses"]).isfinite().all()
        assert one["losses"][1] < one["losses"][0]


def test_br_16_a_loss_that_is_no_number_is_a_failure_that_names_the_draft(extraction):
    extraction.run()
    for name in extraction.output.glob("data_*.pt"):
        data = torch.load(name, weights_only=True)
        data["hidden_states"][0][1] = float("nan")
        torch.save(data, name)
    failed = {check.name: check for check in ready(extraction, draft_layers=[2]).checks.failed}
    assert "2 draft layers: [nan, nan]" in failed["loss and gradients finite"].found


@pytest.mark.parametrize(("tied", "shard", "files"), [(True, "5GB", 1), (False, "300KB", 2)])
def test_br_17_a_verifier_in_one_file_with_a_tied_head_and_one_in_two_shards(extraction, tmp_path, tied, shard, files):
    model = checkpoint(tmp_path / "verifier", tied=tied, shard=shard)
    assert len(list(model.glob("*.safetensors"))) == files
    assert (model / "model.safetensors.index.json").exists() == (files > 1)
    extraction.spec["model"] = str(model)
    extraction.run()
    outcome = ready(extraction, draft_layers=[1])
    assert not outcome.failed, outcome.as_document()


@pytest.mark.parametrize("family", ["chatml", "llama3", "empty_think", "alternating"])
def test_br_18_every_answer_is_trained_on_and_what_has_none_is_counted(extraction, tmp_path, family):
    extraction.spec["model"] = str(checkpoint(tmp_path / "model", family=family))
    # The second one's only answer lies behind the cut; the third is one that a strict template refuses.
    late = [{"role": "user", "content": "Where is Rome? " * 40}, CHAT[1]]
    write(extraction, [{"id": "good", "messages": CHAT}, {"id": "late", "messages": late}])
    spec = {"max_length": 200, "on_too_long": "truncate"}
    with refused(match=r"1 lines give no sample, at most 0 may: line 2 \(late\): no trainable token"):
        extraction.run(**spec)
    outcome = extraction.run(**spec, max_skipped=1)
    assert not outcome.failed
    (sample,) = json.loads(extraction.folder.manifest.read_text())["samples"]
    data = torch.load(extraction.output / sample["file"], weights_only=True)
    answers = sum(len(message["content"]) for message in CHAT[1::2])
    print(family, "trains on", sample["trainable"], "of", sample["length"], "tokens,", answers, "characters")
    assert len(CHAT) // 2 <= sample["trainable"] == int(data["loss_mask"].sum()) < sample["length"]


def test_br_18_a_row_that_the_template_refuses_stops_nothing_else(extraction, tmp_path):
    extraction.spec["model"] = str(checkpoint(tmp_path / "model", family="alternating"))
    write(extraction, [{"messages": CHAT}, {"id": "odd", "messages": [*CHAT[:2], *CHAT[1:2]]}, {"messages": CHAT[:2]}])
    with refused(match=r"line 2 \(odd\): the chat template refuses .*roles must alternate"):
        extraction.run()
    outcome = extraction.run(max_skipped=1)
    assert outcome.data["samples"] == 2
    assert "roles must alternate" in outcome.data["skipped"][0]


def test_br_19_no_row_is_lost_for_a_column_that_others_have(extraction, monkeypatch):
    # All say the same: one forward gives the states of every row.
    monkeypatch.setattr(TransformersEngine, "_states", cached(TransformersEngine._states))
    rows = [{"messages": CHAT[:2], **({"id": str(number)} if number % 7 else {})} for number in range(1001)]
    for number in (3, 500, 1000):
        rows[number]["messages"] = []
    write(extraction, rows)
    # A step takes more than a thousand samples.
    outcome = extraction.run(token_budget=40_000, max_skipped=3)
    manifest = json.loads(extraction.folder.manifest.read_text())
    assert [one["line"] for one in manifest["skipped"]] == [4, 501, 1001]
    assert len(list(extraction.output.glob("data_*.pt"))) == len(rows) - len(manifest["skipped"]) == 998
    assert outcome.data["samples"] == 998
    assert len(torch.load(extraction.output / "data_999.pt", weights_only=True)["hidden_states"]) == len(LAYERS)

"""Data made by others, memory, and the reports from the public that concern judging."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="runs in the ML environment: tools/host_tests.sh")

from aerie_host.judge import flaws, sample_files  # noqa: E402  (found only now)
from tests.ml_environment.made_folder import LAYERS, MadeFolder, failures, founds, sample, statuses  # noqa: E402  (found only now)
from tests.refusals import refused, usage_refused  # noqa: E402  (found only now)

HOST = Path(__file__).parents[2] / "host"
OF_MANIFEST = {
    *("manifest", "every sample has its file", "no other files for training", "the layers asked, in order"),
    *("as many samples as asked", "token coverage", flaws.DIGEST, flaws.TOKENS),
}


def run_judge(path, **spec):
    """The command as a host runs it: exit code and document."""
    done = subprocess.run(
        [sys.executable, str(HOST), "judge", "--spec", "-"],
        input=json.dumps({"output": str(path), **spec}),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def theirs(tmp_path):
    """Samples of another pipeline: no manifest, names of their own, one in a sub-folder."""
    folder = MadeFolder(tmp_path / "theirs", [5, 9, 12])
    folder.manifest.unlink()
    (folder.path / "part").mkdir()
    torch.save(sample(77, 8), folder.path / "part/sample-77.pt")
    return folder


def test_what_others_made_is_judged_and_what_nobody_says_is_no_pass(theirs):
    outcome = theirs.judge(model="/not/here", data="/not/here.jsonl", reference_samples=8)
    found = statuses(outcome)
    assert not outcome.failed
    assert {name for name in OF_MANIFEST if found[name] != "n/a"} == set()
    assert found["equality with Transformers"] == found["hidden size"] == "n/a"
    assert {found[name] for name in flaws.PROPERTIES if name not in flaws.OF_MANIFEST} == {"pass"}
    reasons = {check["name"]: check["wanted"] for check in outcome.checks.as_list() if check["status"] == "n/a"}
    assert all("manifest" in reasons[name] for name in OF_MANIFEST - {"manifest"})
    assert outcome.data["samples"] == 4
    assert outcome.data["tokens"] == 5 + 9 + 12 + 8
    assert outcome.data["hidden_size"] == 16
    assert [one["layer"] for one in outcome.data["statistics"]] == [0, 1, 2, 3]


def test_layers_and_size_of_the_caller_hold_for_what_others_made(theirs):
    assert failures(theirs.judge(layer_ids=LAYERS, hidden_size=16)) == {}
    assert [one["layer"] for one in theirs.judge(layer_ids=LAYERS).data["statistics"]] == LAYERS
    found = failures(theirs.judge(layer_ids=[1, 2, 3], hidden_size=8))
    assert "data_0.pt: 4 layers, 3 were asked: [1, 2, 3]" in found[flaws.LAYERS]
    assert "layer 0: shape [5, 16], wanted [5, 8]" in failures(theirs.judge(layer_ids=LAYERS, hidden_size=8))["shapes"]


def test_damage_to_what_others_made_is_named(theirs):
    data = sample(77, 8)
    data["hidden_states"][1][3, 5] = float("nan")
    torch.save(data, theirs.path / "part/sample-77.pt")
    torch.save(sample(1, 9, layers=3), theirs.path / "data_1.pt")
    torch.save(sample(0, 5), theirs.path / "data_9.pt")
    outcome = theirs.judge()
    found = failures(outcome)
    assert found[flaws.FINITE] == "part/sample-77.pt: tensor 1, position 3: NaN"
    assert found[flaws.LAYERS] == "data_1.pt: 3 layers, 4 are in data_0.pt"
    assert set(found) == {flaws.FINITE, flaws.LAYERS}
    assert outcome.data["not_finite"] == [{"file": "part/sample-77.pt", "where": "tensor 1", "row": 3, "value": "NaN"}]
    assert founds(outcome)["no sample twice"] == "data_9.pt has the tokens of data_0.pt"
    assert founds(outcome)["no holes in the numbering"].startswith("6: data_3.pt; data_4.pt")
    assert statuses(outcome)["no holes in the numbering"] == statuses(outcome)["no sample twice"] == "warn"


def test_what_cannot_be_judged_is_refused(tmp_path):
    folder = MadeFolder(tmp_path / "out", [3])
    (folder.path / "data_0.pt").unlink()
    folder.manifest.unlink()
    with refused(match="holds no sample"):
        folder.judge()
    (folder.path / ".aerie").mkdir()
    (folder.path / ".aerie/fingerprint.json").write_text("{}")
    with refused(match="did not finish"):
        folder.judge()
    assert statuses(folder.judge(check=True)) == {"manifest": "n/a"}


def test_a_model_or_data_that_is_not_here_is_not_needed(tmp_path):
    folder = MadeFolder(tmp_path / "out", [3, 4])
    outcome = folder.judge(model="/not/here", data="/not/here.jsonl", reference_samples=8, vocab_size=0)
    found = statuses(outcome)
    assert not outcome.failed
    for name in ("equality with Transformers", "as many samples as asked", "token ids in the vocabulary"):
        assert found[name] == "n/a"


def test_coverage_and_statistics(tmp_path):
    folder = MadeFolder(tmp_path / "out", [4, 10])
    outcome = folder.judge()
    assert founds(outcome)["token coverage"] == "14 of 14 tokens (100.00%)"
    assert founds(outcome)["mask coverage"] == "7 of 14 tokens (50.00%) are trained on"
    states = [sample(index, length)["hidden_states"] for index, length in enumerate([4, 10])]
    for number, one in enumerate(outcome.data["statistics"]):
        norms = torch.cat([file[number] for file in states]).float().norm(dim=1)
        assert one["rows"] == 14
        assert one["norm"] == pytest.approx(norms.mean().item(), rel=2e-3)
        assert one["spread"] == pytest.approx(norms.std(unbiased=False).item(), rel=2e-2)
        assert (one["least"], one["most"]) == pytest.approx((norms.min().item(), norms.max().item()), rel=4e-3)
    (folder.path / "data_1.pt").unlink()
    assert failures(folder.judge())["token coverage"] == "4 of 14 tokens (28.57%)"


def test_masks_that_leave_nothing_out_are_warned_of(tmp_path):
    folder = MadeFolder(tmp_path / "out", [4, 10])
    for index in range(2):
        data = sample(index, 6)
        data["loss_mask"][:] = 1
        torch.save(data, folder.path / f"data_{index}.pt")
    folder.manifest.unlink()
    assert statuses(folder.judge())["mask coverage"] == "warn"


def test_the_order_of_the_report_is_that_of_the_files_however_many_are_in_work(tmp_path):
    folder = MadeFolder(tmp_path / "out", [3] * 40)
    for index in (7, 3, 31):
        path = folder.path / f"data_{index}.pt"
        path.write_bytes(path.read_bytes()[:-1])
    found = failures(folder.judge())[flaws.DIGEST]
    assert [part.split(":")[0] for part in found.split("; ")] == ["data_3.pt", "data_7.pt", "data_31.pt"]
    assert sample_files.workers() >= 1


PEAK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from aerie_host.judge import command as judge
from aerie_host.spec import Spec
outcome = judge.run(Spec({"output": sys.argv[2]}, "judge"), False)
peak = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")][0]
print(json.dumps({"failed": outcome.failed, "bytes": outcome.data["bytes"], "peak": int(peak.split()[1]) * 1024}))
"""


def peak_of(path):
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(HOST), str(path)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_memory_does_not_depend_on_how_much_is_judged(tmp_path):
    # 4 layers of 512 tokens, 4 KB a row: 8 MB a file.
    small = peak_of(MadeFolder(tmp_path / "small", [512] * 4, hidden=2048).path)
    large = peak_of(MadeFolder(tmp_path / "large", [512] * 32, hidden=2048).path)
    assert not small["failed"]
    assert not large["failed"]
    assert large["bytes"] == pytest.approx(8 * small["bytes"], rel=0.01)
    assert large["bytes"] > 250e6
    assert large["peak"] < 1.1 * small["peak"]


def test_br_08_two_of_three_files_with_numbers_that_are_none_are_rejected_by_name(tmp_path):
    folder = MadeFolder(tmp_path / "out", [9, 9, 9])
    folder.manifest.unlink()
    for index, (layer, row, bad) in {1: (1, 3, float("nan")), 2: (3, 6, float("inf"))}.items():
        data = sample(index, 9)
        data["hidden_states"][layer][row, 0] = bad
        torch.save(data, folder.path / f"data_{index}.pt")
    code, document = run_judge(folder.path, layer_ids=[0, 1, 2, 3])
    assert code == 1
    found = {check["name"]: check["found"] for check in document["aerie"]["checks"] if check["status"] == "fail"}
    assert found == {flaws.FINITE: "data_1.pt: layer 1, position 3: NaN; data_2.pt: layer 3, position 6: infinity"}


def test_br_11_an_index_that_lost_the_samples_before_a_resume_is_no_pass(tmp_path):
    folder = MadeFolder(tmp_path / "out", list(range(1, 11)))
    assert folder.judge().data["samples"] == 10
    folder.change_manifest(lambda values: values.update(samples=values["samples"][6:]))
    found = failures(folder.judge())
    assert found == {"no other files for training": "data_0.pt; data_1.pt; data_2.pt; data_3.pt; data_4.pt; and 1 more"}


@pytest.mark.parametrize("lengths", [[1, 20], [2048, 8]])
def test_br_12_lengths_are_counted_and_not_guessed(tmp_path, lengths):
    folder = MadeFolder(tmp_path / "out", lengths)
    outcome = folder.judge()
    assert not outcome.failed
    assert outcome.data["tokens"] == sum(lengths)
    assert sum(outcome.data["lengths"]["counts"]) == 2
    wrong = lengths[1] + 1
    folder.change_manifest(lambda values: values["samples"][1].update(length=wrong))
    assert f"input_ids has {lengths[1]} tokens, the manifest says {wrong}" in failures(folder.judge())[flaws.LENGTHS]


def test_br_12_a_sample_without_tokens_is_rejected(tmp_path):
    folder = MadeFolder(tmp_path / "out", [4, 0])
    assert failures(folder.judge())[flaws.LENGTHS] == "data_1.pt: has no token"


def test_br_13_a_slice_that_keeps_its_batch_is_rejected(tmp_path):
    folder = MadeFolder(tmp_path / "out", [10, 2048], hidden=8)
    assert not folder.judge().failed
    size = (folder.path / "data_0.pt").stat().st_size
    assert size <= 1.1 * (4 * 10 * 8 * 2) + 4096

    def as_views(data):
        batch = torch.cat([torch.stack(data["hidden_states"]), torch.ones(4, 2048, 8).bfloat16()], dim=1)
        data["hidden_states"] = [layer[:10] for layer in batch]

    folder.change(as_views, "data_0.pt")
    assert (folder.path / "data_0.pt").stat().st_size > 60_000
    assert "data_0.pt: layer 0: stores 8232 states for 10 tokens" in failures(folder.judge())[flaws.OWN_ROWS]


def test_br_14_a_folder_that_is_missing_or_a_file_or_not_full_is_no_pass(tmp_path):
    code, document = run_judge(tmp_path / "missing")
    assert code == 2
    assert document["msg"] == (
        f"output folder: there is no folder {tmp_path}/missing; wanted a folder of samples. "
        "Remedy: extract into it (--tags extract), or correct hidden_states_output_path"
    )
    (tmp_path / "file").write_text("")
    code, document = run_judge(tmp_path / "file")
    assert code == 2
    assert document["msg"].startswith(f"output folder: {tmp_path}/file is a file; wanted a folder of samples. Remedy: ")
    folder = MadeFolder(tmp_path / "out", [3] * 4)
    data = tmp_path / "data.jsonl"
    data.write_text('{"messages": []}\n' * 128)
    assert failures(folder.judge(data=str(data))) == {"as many samples as asked": "4 written, 0 skipped"}
    with usage_refused(match="is a folder; wanted one file"):
        folder.judge(data=str(tmp_path))


@pytest.mark.parametrize("length", [6, 0])
def test_br_15_states_in_float32_are_rejected_in_a_placeholder_too(tmp_path, length):
    folder = MadeFolder(tmp_path / "out", [6, length])

    def as_float(data):
        data["hidden_states"] = [states.float() for states in data["hidden_states"]]

    folder.change(as_float)
    found = failures(folder.judge())[flaws.DTYPES]
    assert found.startswith("data_1.pt: layer 0: torch.float32, wanted torch.bfloat16; data_1.pt: layer 2:")

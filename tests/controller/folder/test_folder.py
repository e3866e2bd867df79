"""The folder of an extraction: journal, lock, names, and what resuming keeps."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from aerie_host.data.samples import Sample
from aerie_host.extract.schedule import bytes_on_disk, order
from aerie_host.folder import fingerprint, journal, resume
from aerie_host.folder.holds import hold_folder
from aerie_host.folder.layout import Folder
from aerie_host.folder.record import SampleRecord
from aerie_host.shared.digests import folder_digest, sha256_bytes, sha256_file
from aerie_host.shared.durable import write_durably, write_json
from aerie_host.shared.sample_size import overhead
from tests.refusals import refused


def sample(index, length=4):
    return Sample(index, index + 1, f"s{index}", list(range(length)), [0] * (length - 1) + [1])


def write(folder, one):
    content = f"content of {one.index}".encode()
    folder.sample(one.index).write_bytes(content)
    name = f"data_{one.index}.pt"
    return SampleRecord(
        one.index, one.line, one.id, name, len(one.input_ids), 1, len(content), sha256_bytes(content), one.digest
    )


@pytest.fixture
def folder(tmp_path):
    made = Folder(tmp_path / "out")
    made.create()
    return made


def test_a_torn_journal_line_loses_that_sample_only(folder):
    samples = [sample(n) for n in range(4)]
    journal.append(folder.journal, [write(folder, one) for one in samples[:3]])
    text = folder.journal.read_bytes()
    folder.journal.write_bytes(text[:-20])
    assert sorted(journal.read(folder.journal)) == [0, 1]
    journal.append(folder.journal, [write(folder, samples[3])])
    assert sorted(journal.read(folder.journal)) == [0, 1, 3]


def test_resume_keeps_what_is_whole_and_counts_the_rest_by_reason(folder):
    samples = [sample(n) for n in range(7)]
    journal.append(folder.journal, [write(folder, one) for one in samples[:5]])
    folder.sample(1).unlink()
    folder.sample(2).write_bytes(b"content of X")
    folder.sample(3).write_bytes(b"")
    folder.sample(5).write_bytes(b"never journaled")
    samples[4] = sample(4, length=6)
    kept = resume.keep_good(folder, samples)
    assert list(kept.records) == [0]
    assert kept.redone == {
        "file altered": 1,
        "file missing": 1,
        "file not in the journal": 1,
        "file of another size": 1,
        "other tokens": 1,
    }


def manifest(folder, print_, entries):
    write_json(folder.manifest, {"fingerprint": print_, "samples": [dataclasses.asdict(e) for e in entries]})
    write_json(folder.fingerprint, print_)


def test_finished_means_the_same_inputs_and_every_byte(folder):
    entries = [write(folder, sample(n)) for n in range(3)]
    manifest(folder, {"layers": [1]}, entries)
    assert resume.finished_manifest(folder, {"layers": [1]}) is not None
    assert resume.finished_manifest(folder, {"layers": [2]}) is None
    folder.sample(1).write_bytes(b"content of 2")
    assert resume.finished_manifest(folder, {"layers": [1]}) is None
    write(folder, sample(1))
    assert resume.finished_manifest(folder, {"layers": [1]}) is not None
    for broken in ([1], [{}], 5, [{"file": 1, "sha256": "", "bytes": 0}]):
        write_json(folder.manifest, {"fingerprint": {"layers": [1]}, "samples": broken})
        assert resume.finished_manifest(folder, {"layers": [1]}) is None
    manifest(folder, {"layers": [1]}, entries)
    (folder.path / "extra.pt").write_bytes(b"")
    assert resume.finished_manifest(folder, {"layers": [1]}) is None


def test_other_inputs_are_refused_by_name(folder):
    write_json(folder.fingerprint, {"layers": [1, 2], "stack": "a", "data": "d" * 64})
    with refused(match=r"changed: data \(d{12} -> e{12}\), layers \(\[1, 2\] -> \[2, 1\]\)"):
        resume.refuse_other_inputs(folder, {"layers": [2, 1], "stack": "a", "data": "e" * 64})
    resume.refuse_other_inputs(folder, {"layers": [1, 2], "stack": "a", "data": "d" * 64})


def test_samples_of_unknown_origin_are_refused(folder):
    resume.refuse_other_inputs(folder, {})
    write(folder, sample(0))
    with refused(match="did not write"):
        resume.refuse_other_inputs(folder, {})


@pytest.mark.parametrize(
    "name", ["data_9.pt", "data_01.pt", "notes.pt", "checkpoint.ckpt", "old/data_1.pt", ".hidden.pt", "transcript.txt"]
)
def test_foreign_files_that_training_would_read_are_named(folder, name):
    write(folder, sample(0))
    path = folder.path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"mine")
    if not name.endswith("pt"):
        resume.refuse_foreign_files(folder, {0, 1})
        return
    with refused(match=name.replace(".", r"\.")):
        resume.refuse_foreign_files(folder, {0, 1})


def test_folders_with_the_names_of_samples_are_named(folder):
    for name in ("data_3.pt", "data_7.pt", "data_8.safetensors", "data_x.pt", "old"):
        (folder.path / name).mkdir()
    (folder.path / "data_1.pt").symlink_to(folder.path / "old")
    assert folder.folders_named_as_samples({1, 3, 4, 8}) == ["data_3.pt", "data_8.safetensors"]
    assert folder.folders_named_as_samples() == ["data_3.pt", "data_7.pt", "data_8.safetensors"]
    with refused(match=r"holds folders that have names of samples: data_3\.pt; .*move them away"):
        resume.refuse_foreign_files(folder, {3, 4})
    resume.refuse_foreign_files(folder, {4})


def test_what_replacing_removes_is_not_foreign(folder):
    for number in (0, 9):
        write(folder, sample(number))
    resume.refuse_foreign_files(folder)
    (folder.path / "data_9.pt.pt").write_bytes(b"mine")
    with refused(match=r"not its samples: data_9\.pt\.pt;"):
        resume.refuse_foreign_files(folder)


def test_overwriting_removes_samples_and_bookkeeping_and_nothing_else(folder):
    journal.append(folder.journal, [write(folder, sample(n)) for n in range(3)])
    write_json(folder.manifest, {})
    for name in ("notes.pt", "readme", "data_x.pt"):
        (folder.path / name).write_bytes(b"mine")
    assert folder.clear() == 3
    assert sorted(path.name for path in folder.path.iterdir() if path.is_file()) == ["data_x.pt", "notes.pt", "readme"]
    assert journal.read(folder.journal) == {}


def test_none_of_our_own_names_is_read_by_training(folder):
    journal.append(folder.journal, [write(folder, sample(0))])
    write_json(folder.fingerprint, {})
    write_json(folder.manifest, {})
    (folder.temporary / "data_3.partial").write_bytes(b"")
    assert [path.name for path in folder.training_files()] == ["data_0.pt"]
    with hold_folder(folder):
        assert [path.name for path in folder.training_files()] == ["data_0.pt"]
    assert folder.drop_temporaries() == ["data_3.partial"]
    assert folder.drop_temporaries() == []


def test_a_second_job_on_the_folder_is_refused_with_the_first_ones_number(folder):
    script = (
        "import sys, pathlib\n"
        "from aerie_host.folder.holds import hold_folder\n"
        "from aerie_host.folder.layout import Folder\n"
        "with hold_folder(Folder(pathlib.Path(sys.argv[1]))):\n print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(folder.path)]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as holder:
        holder.stdout.readline()
        with (
            refused(match=rf"in use by another extraction \(process {holder.pid}\)"),
            hold_folder(folder),
        ):
            pass
        holder.kill()
    with hold_folder(folder):
        pass


def test_the_output_may_be_missing_but_not_a_file_nor_read_only(tmp_path):
    Folder(tmp_path / "a/b/c").create()
    (tmp_path / "file").write_text("x")
    with refused(match="is a file"):
        Folder(tmp_path / "file").create()
    # Root may write anywhere, but not below what is no folder.
    with refused(match="cannot be written"):
        Folder(tmp_path / "file/below").create()


def test_a_failed_write_leaves_nothing(tmp_path):
    target = tmp_path / "x"
    with pytest.raises(TypeError):
        write_durably(target, "text is no bytes")
    assert list(tmp_path.iterdir()) == []


def test_model_digest_sees_names_contents_and_the_middle_of_large_files(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    large = tmp_path / "weights"
    with large.open("wb") as stream:
        stream.truncate(40 << 20)
    first = folder_digest(tmp_path)
    assert folder_digest(tmp_path) == first
    with large.open("r+b") as stream:
        stream.seek(20 << 20)
        stream.write(b"x")
    second = folder_digest(tmp_path)
    assert second != first
    (tmp_path / "config.json").rename(tmp_path / "config2.json")
    assert folder_digest(tmp_path) not in (first, second)
    (tmp_path / "model.json").write_text("ours")
    assert folder_digest(tmp_path, skip=("model.json",)) == folder_digest(tmp_path, skip=("model.json", "nothing"))


def test_fingerprint_differences_are_in_words():
    before = {"layers": [1], "samples": {"max_length": 5}, "dtype": "bfloat16"}
    assert fingerprint.differences(before, dict(before)) == []
    assert fingerprint.differences(before, {**before, "dtype": "float32"}) == ["dtype (bfloat16 -> float32)"]
    assert fingerprint.digest(before) != fingerprint.digest({**before, "layers": [1, 2]})


def test_the_order_fills_steps_with_long_samples_and_the_short_ones_that_fit():
    lengths = [3, 90, 10, 10, 55, 120, 1, 40]
    ordered = [len(one.input_ids) for one in order([sample(n, length) for n, length in enumerate(lengths)], 100)]
    assert sorted(ordered) == sorted(lengths)
    assert ordered == [120, 90, 1, 3, 55, 40, 10, 10]
    assert order([], 100) == []


def test_the_disk_estimate_is_the_contract_of_the_file():
    # 4 layers of 7168 in bfloat16 and two int64 per token: 57,360 bytes, as any planning has to count.
    # The rest is what the judge allows a file beside its tensors.
    assert bytes_on_disk([sample(0, 512), sample(1, 88)], 4, 7168) == 600 * 57_360 + 2 * overhead(6)


@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 5000])
def test_the_digest_of_a_file_is_that_of_its_bytes(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert sha256_file(tmp_path / "file") == sha256_bytes(content)

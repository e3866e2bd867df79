"""The record of a sample: one definition for journal and manifest, and every way in which a record can be wrong."""

from __future__ import annotations

import json

import pytest

from aerie_host.folder import journal, manifest
from aerie_host.folder.record import FieldError, SampleRecord
from aerie_host.shared.refusal import Refusal

RECORD = SampleRecord(3, 4, "a", "data_3.pt", 7, 5, 900, "1" * 64, "2" * 64)


def test_a_record_is_read_as_it_was_written():
    values = json.loads(json.dumps(RECORD.as_data()))
    assert list(values) == ["index", "line", "id", "file", "length", "trainable", "bytes", "sha256", "tokens_sha256"]
    assert SampleRecord.from_data(values) == RECORD
    assert SampleRecord.from_data({**values, "of a later version": 1}) == RECORD


@pytest.mark.parametrize("name", RECORD.as_data())
@pytest.mark.parametrize("value", [None, True, -1, 2**63, 1.5, [], {}])
def test_a_wrong_field_is_named(name, value):
    with pytest.raises(FieldError, match=f"^'{name}' is .*, wanted (a whole number|text)$"):
        SampleRecord.from_data({**RECORD.as_data(), name: value})


@pytest.mark.parametrize("name", RECORD.as_data())
def test_a_missing_field_is_named(name):
    values = RECORD.as_data()
    del values[name]
    with pytest.raises(FieldError, match=f"^lacks '{name}'$"):
        SampleRecord.from_data(values)


def test_a_long_value_is_shortened():
    with pytest.raises(FieldError) as caught:
        SampleRecord.from_data({**RECORD.as_data(), "index": "x" * 10_000})
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("file", "found"),
    [
        ("/data_3.pt", "outside"),
        ("../data_3.pt", "outside"),
        ("", "outside"),
        ("data_3.bin", "which training does not read"),
    ],
)
def test_a_record_names_a_sample_of_its_folder(file, found):
    with pytest.raises(FieldError, match=found):
        SampleRecord.from_data({**RECORD.as_data(), "file": file})


def test_the_journal_leaves_out_what_is_no_record(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal.append(path, [RECORD])
    wrong = {**RECORD.as_data(), "index": "4"}
    with path.open("a") as stream:
        stream.write(f"{json.dumps(wrong)}\n[1]\n{'[' * 100_000}\n")
    journal.append(path, [])
    assert journal.read(path) == {3: RECORD}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"skipped": 5}, "'skipped' is 5, wanted a list"),
        ({"skipped": [{"index": 1}, {"line": 2}]}, "row 1 of 'skipped' lacks 'index'"),
        ({"truncated": "x"}, "'truncated' is 'x', wanted a list"),
        ({"data": {"shard": "3/2"}}, "'shard' of 'data' is '3/2', wanted i/n"),
        ({"samples": [RECORD.as_data(), {}]}, "sample 1 lacks 'index'"),
        ({"hidden_size": "8"}, "'hidden_size' is '8', wanted a whole number"),
    ],
)
def test_a_wrong_field_of_the_manifest_is_named(tmp_path, changes, found):
    path = tmp_path / "manifest.json"
    values = {"version": 1, "model": {}, "layers": [1], "hidden_size": 8, "samples": [RECORD.as_data()]}
    path.write_text(json.dumps(values))
    assert manifest.read(path).samples == [RECORD]
    path.write_text(json.dumps({**values, **changes}))
    with pytest.raises(Refusal) as caught:
        manifest.read(path)
    assert found in caught.value.found
    assert caught.value.file == str(path)

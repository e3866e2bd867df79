"""Data files: which format a file has, its rows with their numbers, and shards."""

from __future__ import annotations

import json
import os
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerie_host.data import data_file
from aerie_host.data.data_file import DataFile, Row
from aerie_host.shared.shard import Shard, parse
from tests.refusals import refused, usage_refused

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
# Numbers are no rows, but where one ends only what follows it tells.
ROW = st.dictionaries(st.text(string.ascii_letters, min_size=1, max_size=5), VALUES, max_size=3) | st.integers()
ROWS = st.lists(ROW, min_size=1)


def file(tmp_path, content):
    path = tmp_path / "data"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@settings(max_examples=60, deadline=None)
@given(values=ROWS, indent=st.sampled_from([None, 1]), chunk=st.integers(1, 40), ascii_only=st.booleans())
def test_an_array_read_in_pieces_gives_what_was_written(tmp_path_factory, values, indent, chunk, ascii_only):
    path = file(tmp_path_factory.mktemp("array"), json.dumps(values, indent=indent, ensure_ascii=ascii_only))
    before, data_file.CHUNK = data_file.CHUNK, chunk
    try:
        found = DataFile(path)
        assert (found.format, found.unit) == ("JSON array", "row")
        assert list(found.read()) == [Row(n, n + 1, value) for n, value in enumerate(values)]
    finally:
        data_file.CHUNK = before


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 60), shards=st.integers(1, 12), array=st.booleans(), blank=st.integers(0, 5))
def test_shards_are_disjoint_balanced_and_together_the_data(tmp_path_factory, count, shards, array, blank):
    values = [{"id": number} for number in range(count)]
    lines = "\n".join(json.dumps(value) + "\n" * (number % 7 == blank) for number, value in enumerate(values))
    path = file(tmp_path_factory.mktemp("shards"), json.dumps(values) if array else lines)
    whole = list(DataFile(path).read())
    parts = [list(DataFile(path).read(Shard(number, shards))) for number in range(1, shards + 1)]
    assert sorted(row for part in parts for row in part) == whole
    assert [row.value for row in whole] == values
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert parts == [list(DataFile(path).read(Shard(number, shards))) for number in range(1, shards + 1)]


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "1/2/3", "-1/2", "", "1 /2"])
def test_what_is_no_shard_is_refused(text):
    with usage_refused(match="wanted i/n with i from 1 to n"):
        parse(text)
    assert str(parse("2/8")) == "2/8"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "it is empty"),
        (b"\n\n  \n", "it is empty"),
        (b"question,answer\n1,2\n", "it begins with 'question,answer'"),
        (b'{\n "messages": []\n}\n', r"it begins with '\{', and no line of it is a whole JSON object"),
        (b'{"messages": [\n', "it begins with .*, and no line of it is a whole JSON object"),
        (b"\x1f\x8b\x08\x00", "gzip: unpack it first"),
        (b"PK\x03\x04aaa", "a zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
        (b"\x00\x01\x02", "it begins with"),
        ('{"a": 1}'.encode("utf-16"), "UTF-16: save it as UTF-8"),
    ],
)
def test_a_file_of_no_known_format_is_named_with_what_was_found(tmp_path, content, found):
    with usage_refused(match=rf"data is neither JSON lines, a JSON array nor parquet: {found}"):
        DataFile(file(tmp_path, content))


def test_what_is_no_file_is_no_data(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, found in ((tmp_path, "a folder"), (tmp_path / "pipe", "no regular file"), (tmp_path / "no", "not there")):
        with usage_refused(match=f"is {found}"):
            DataFile(path)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'{"a": 1}\n', "JSON lines"),
        (b'broken\n{"a": 1}\n', "JSON lines"),
        (b'\xef\xbb\xbf{"a": 1}', "JSON lines"),
        (b'[1]\n{"a": 1}\n', "JSON lines"),
        (b'{"a": "' + b"x" * data_file.HEAD + b'"}', "JSON lines"),
        ('{"a": "\u2028' + "x" * data_file.HEAD + '"}', "JSON lines"),
        (b'\n \xef\xbb\xbf[{"a": 1}]'[2:], "JSON array"),
        (b'[{"a": 1},\n{"a": 2}]', "JSON array"),
        (b"[]", "JSON array"),
        (b"[" * 5000 + b"\nx", "JSON array"),
        (b"PAR1...", "parquet"),
    ],
)
def test_the_format_is_what_the_content_says(tmp_path, content, kind):
    assert DataFile(file(tmp_path, content)).format == kind


@pytest.mark.parametrize(
    ("content", "message", "before"),
    [
        ('[{"a": 1}, {"a": ]', "row 2 of the array is broken JSON", 1),
        ('[{"a": 1}, {"a": 2}', r"a comma or '\]' is missing after row 2", 2),
        ('[{"a": 1} {"a": 2}]', r"a comma or '\]' is missing after row 1", 1),
        ('[{"a": 1}, ]', "row 2 of the array is broken JSON", 1),
        ('[{"a": 1}] x', "'x' follows the end of the array, after row 1", 1),
        ("[", "row 1 of the array is broken JSON", 0),
        (b'[{"a": 1}, "\xff"]', "no UTF-8 in or after row 1", 0),
        ("[" * 100_000, "row 1 of the array is nested too deeply", 0),
        ('[{"a": 1}, {"a": ' + "9" * 5000 + "}]", "row 2 of the array cannot be read: Exceeds the limit", 1),
    ],
)
def test_an_array_that_is_broken_is_named_by_its_row(tmp_path, content, message, before):
    read = DataFile(file(tmp_path, content)).read()
    found = []
    with refused(match=message):
        found.extend(read)
    assert len(found) == before


def test_a_broken_line_costs_that_line_alone(tmp_path):
    deep, digits = b"[" * 100_000, b"9" * 5000
    text = b'{"a": 1}\n{"a": \n{"a": "\xff"}\n' + deep + b'\n\n{"a": 2}\n' + digits
    found = list(DataFile(file(tmp_path, text)).read())
    assert [(row.place, row.number, row.problem[:11]) for row in found] == [
        (0, 1, ""),
        (1, 2, "broken JSON"),
        (2, 3, "no UTF-8 at"),
        (3, 4, "JSON that i"),
        (4, 6, ""),
        (5, 7, "JSON that c"),
    ]

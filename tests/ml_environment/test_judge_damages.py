"""Every kind of damage to a folder of samples has its own message, which names file, layer and row."""

from __future__ import annotations

import json
import shutil

import pytest

torch = pytest.importorskip("torch", reason="runs in the ML environment: tools/host_tests.sh")

from aerie_host.judge import flaws  # noqa: E402  (found only now)
from tests.ml_environment.made_folder import HIDDEN, MadeFolder, failures, statuses  # noqa: E402  (found only now)

LENGTHS = [5, 9, 12, 7, 30, 1]
COVERAGE = "token coverage"


@pytest.fixture
def folder(tmp_path):
    return MadeFolder(tmp_path / "out", LENGTHS)


def set_rows(layer, row, value):
    def edit(data):
        data["hidden_states"][layer][row] = value

    return edit


def put(key, change):
    """Replace what is under a key."""

    def edit(data):
        data[key] = change(data[key])

    return edit


def state(number, change):
    """Replace one layer's tensor."""

    def edit(data):
        data["hidden_states"][number] = change(data["hidden_states"][number])

    return edit


def value(key, place, number):
    def edit(data):
        data[key][place] = number

    return edit


def drop(key):
    def edit(data):
        del data[key]

    return edit


def view_of_a_batch(states):
    return torch.cat([states] * 3)[: len(states)]


def padded_with_another_tensor(data):
    data["input_ids"] = torch.cat([data["input_ids"]] * 2000)[: len(data["input_ids"])]


def equal_layers(data):
    data["hidden_states"][2] = data["hidden_states"][0].clone()


def half_equal_layers(data):
    data["hidden_states"][2][:5] = data["hidden_states"][0][:5]


def three_layers(data):
    del data["hidden_states"][2]


def no_tokens(data):
    data["input_ids"], data["loss_mask"] = data["input_ids"][:0].clone(), data["loss_mask"][:0].clone()
    data["hidden_states"] = [states[:0].clone() for states in data["hidden_states"]]


class Trap:
    """Runs code when it is unpickled by a careless reader."""

    def __reduce__(self):
        return (open, ("/nonexistent/ran", "w"))


NAN, INF = float("nan"), float("inf")
# name: edit, failing check, text after the file's name
CONTENT = {
    "nan": (set_rows(1, 3, NAN), flaws.FINITE, "layer 2, position 3: NaN"),
    "infinity": (set_rows(3, 0, -INF), flaws.FINITE, "layer 5, position 0: infinity"),
    "nan in many rows": (
        set_rows(0, slice(1, 8), NAN),
        flaws.FINITE,
        "layer 0, positions 1, 2, 3, 4, 5 and 2 more: NaN",
    ),
    "row of zeros": (set_rows(0, slice(2, 4), 0.0), flaws.VARIED, "layer 0, positions 2, 3: all zeros"),
    "constant layer": (
        state(1, torch.ones_like),
        flaws.VARIED,
        "layer 2, positions 0, 1, 2, 3, 4 and 4 more: one value throughout",
    ),
    "rows all equal": (
        state(0, lambda one: one[:1].repeat(9, 1)),
        flaws.VARIED,
        "layer 0: all 9 tokens have the same state",
    ),
    "two equal layers": (equal_layers, flaws.DISTINCT, "layers 0 and 4: equal in 9 of 9 tokens"),
    "half of two layers": (
        half_equal_layers,
        flaws.DISTINCT,
        "layers 0 and 4: equal in 5 of 9 tokens, at positions 0, 1, 2",
    ),
    "layer missing": (three_layers, flaws.LAYERS, "3 layers, 4 were asked: [0, 2, 4, 5]"),
    "view of a batch": (state(0, view_of_a_batch), flaws.OWN_ROWS, "layer 0: stores 27 states for 9 tokens"),
    "file too large": (padded_with_another_tensor, flaws.OWN_ROWS, "its 6 tensors 1296"),
    "key missing": (drop("loss_mask"), flaws.FORM, "the key loss_mask is missing"),
    "key too much": (lambda data: {**data, "extra": 1}, flaws.FORM, "the key extra is unexpected"),
    "stacked states": (put("hidden_states", torch.stack), flaws.FORM, "hidden_states is torch.bfloat16 [4, 9, 16]"),
    "no tensor": (state(2, lambda _: "x"), flaws.FORM, "hidden_states[2] is str, wanted a tensor"),
    "sparse states": (state(2, torch.Tensor.to_sparse), flaws.FORM, "hidden_states[2] is sparse or expanded"),
    "expanded ids": (
        put("input_ids", lambda ids: ids[:1].clone().expand(9)),
        flaws.FORM,
        "input_ids is sparse or expanded",
    ),
    "int32 ids": (put("input_ids", torch.Tensor.int), flaws.FORM, "input_ids is torch.int32 [9], wanted int64 [seq]"),
    "float ids": (put("input_ids", torch.Tensor.float), flaws.FORM, "input_ids is torch.float32 [9]"),
    "ids of rank 2": (put("input_ids", lambda ids: ids[None]), flaws.FORM, "input_ids is torch.int64 [1, 9]"),
    "bool mask": (put("loss_mask", torch.Tensor.bool), flaws.FORM, "loss_mask is torch.bool [9], wanted int64 [seq]"),
    "float32 states": (state(1, torch.Tensor.float), flaws.DTYPES, "layer 2: torch.float32, wanted torch.bfloat16"),
    "float16 states": (state(3, torch.Tensor.half), flaws.DTYPES, "layer 5: torch.float16, wanted torch.bfloat16"),
    "states of rank 3": (state(1, lambda one: one[None]), flaws.SHAPES, "layer 2: shape [1, 9, 16], wanted [9, 16]"),
    "narrow states": (state(3, lambda one: one[:, :8].clone()), flaws.SHAPES, "layer 5: shape [9, 8], wanted [9, 16]"),
    "short states": (state(3, lambda one: one[:-1].clone()), flaws.SHAPES, "layer 5: shape [8, 16], wanted [9, 16]"),
    "short mask": (put("loss_mask", lambda mask: mask[:-1].clone()), flaws.LENGTHS, "loss_mask has 8 values for 9"),
    "negative id": (value("input_ids", 4, -7), flaws.IDS, "position 4: negative token id -7"),
    "id too large": (value("input_ids", 2, 300), flaws.IDS, "position 2: token id 300, the vocabulary has 300"),
    "mask of twos": (value("loss_mask", 8, 2), flaws.MASK, "position 8: loss_mask holds 2, wanted 0 or 1"),
    "empty mask": (put("loss_mask", torch.zeros_like), flaws.MASK, "loss_mask has no trainable token"),
    "one more": (value("loss_mask", 0, 1), flaws.MASK, "6 trainable tokens, the manifest says 5"),
    "another's tokens": (value("input_ids", 0, 299), flaws.TOKENS, "holds the tokens of another sample"),
    "a list": (lambda data: list(data.values()), flaws.READABLE, "holds a list, wanted a dict"),
    "code": (lambda _: {"input_ids": Trap()}, flaws.READABLE, "holds a pickle that would run code (io.open)"),
}


@pytest.mark.parametrize("kind", CONTENT)
def test_damage_inside_a_file_is_named(folder, kind):
    edit, name, text = CONTENT[kind]
    folder.change(edit)
    outcome = folder.judge()
    found = failures(outcome)
    # What cannot be read has no tokens either, and a sample without trainable tokens is also one without coverage.
    allowed = {name, COVERAGE} if name in (flaws.FORM, flaws.READABLE) else {name}
    allowed |= {"mask coverage"} if kind == "empty mask" else set()
    assert {name} <= set(found) <= allowed
    assert found[name].startswith("data_1.pt: ")
    assert text in found[name]
    assert "; " not in found[name], "one damage, one message"
    assert outcome.failed


def test_every_kind_of_damage_has_its_own_words():
    texts = [text for _, _, text in CONTENT.values()]
    assert len(set(texts)) == len(texts) > 20


def write(name, content):
    def edit(folder):
        path = folder.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return edit


def cut(folder):
    path = folder.path / "data_1.pt"
    path.write_bytes(path.read_bytes()[:1000])


def flip_a_bit(folder):
    path = folder.path / "data_1.pt"
    content = bytearray(path.read_bytes())
    where = content.index(torch.load(path)["hidden_states"][2].view(torch.int16).numpy().tobytes())
    content[where] ^= 1
    path.write_bytes(content)


def swap_two(folder):
    one, two = folder.path / "data_0.pt", folder.path / "data_1.pt"
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(first)


def legacy(folder):
    path = folder.path / "data_1.pt"
    torch.save(torch.load(path), path, _use_new_zipfile_serialization=False)


def remove(name):
    return lambda folder: (folder.path / name).unlink()


def replace_by_folder(folder):
    (folder.path / "data_1.pt").unlink()
    (folder.path / "data_1.pt").mkdir()


def copy(name, to):
    def edit(folder):
        (folder.path / to).parent.mkdir(exist_ok=True)
        shutil.copy(folder.path / name, folder.path / to)

    return edit


SIZE = "bytes, the manifest says"
# name: edit, texts by check
FOLDER = {
    "cut off": (cut, {flaws.READABLE: "data_1.pt: is cut off: it begins as a zip archive", flaws.DIGEST: SIZE}),
    "empty": (write("data_1.pt", b""), {flaws.READABLE: "data_1.pt: is empty, 0 bytes", flaws.DIGEST: "has 0 bytes"}),
    "no zip": (write("data_1.pt", b"x" * 99), {flaws.READABLE: "data_1.pt: is no zip archive", flaws.DIGEST: SIZE}),
    "old format": (legacy, {flaws.READABLE: "data_1.pt: is no zip archive", flaws.DIGEST: SIZE}),
    "flipped bit": (flip_a_bit, {flaws.DIGEST: "data_1.pt: sha256 is "}),
    "swapped files": (swap_two, {flaws.DIGEST: SIZE, flaws.LENGTHS: "input_ids has 9 tokens, the manifest says 5"}),
    "missing": (
        remove("data_1.pt"),
        {
            flaws.READABLE: "data_1.pt: is missing",
            "every sample has its file": "5 of 6 files, missing: data_1.pt",
            "no holes in the numbering": "1: data_1.pt",
        },
    ),
    "a folder": (
        replace_by_folder,
        {
            flaws.READABLE: "data_1.pt: is a folder, wanted a file",
            "every sample has its file": "missing: data_1.pt",
            "no holes in the numbering": "1: data_1.pt",
        },
    ),
    "foreign": (copy("data_0.pt", "sub/data_77.pt"), {"no other files for training": "sub/data_77.pt"}),
    "foreign name": (write("vocab_pt", b""), {"no other files for training": "vocab_pt"}),
    "hole": (
        lambda folder: folder.change_manifest(lambda values: values["samples"].pop(2)),
        {"no other files for training": "data_2.pt"},
    ),
}


@pytest.mark.parametrize("kind", FOLDER)
def test_damage_to_the_folder_is_named(folder, kind):
    edit, texts = FOLDER[kind]
    edit(folder)
    found = failures(folder.judge())
    assert set(texts) <= set(found) <= {*texts, COVERAGE}
    for name, text in texts.items():
        assert text in found[name]


def test_a_hole_that_the_manifest_explains_is_none(folder):
    (folder.path / "data_2.pt").unlink()

    def skip(values):
        values["samples"].pop(2)
        values["skipped"] = [{"index": 2, "line": 3, "id": "", "reason": "no messages"}]

    folder.change_manifest(skip)
    assert failures(folder.judge()) == {}


def test_unfinished_and_stray_files_are_warned_of(folder):
    for name in (".aerie/tmp/data_9.partial", "data_9.pt.tmp", ".data_3.pt.partial", "notes.txt"):
        write(name, b"x")(folder)
    outcome = folder.judge()
    assert not outcome.failed
    found = {check["name"]: check["found"] for check in outcome.checks.as_list() if check["status"] == "warn"}
    assert found["no unfinished files"] == ".aerie/tmp/data_9.partial; .data_3.pt.partial; data_9.pt.tmp"
    assert found["no stray files"] == "notes.txt"


def test_a_repeat_in_the_data_is_warned_of_and_a_copied_file_fails(folder):
    shutil.copy(folder.path / "data_0.pt", folder.path / "data_6.pt")
    folder.change_manifest(lambda values: values["samples"].append(folder.entry(6)))
    outcome = folder.judge()
    assert not outcome.failed
    assert statuses(outcome)["no sample twice"] == "warn"
    # The data has one sample here, the file another: not the data repeats, the extraction went wrong.
    folder.change_manifest(lambda values: values["samples"][6].update(tokens_sha256="another"))
    assert failures(folder.judge()) == {flaws.TOKENS: "data_6.pt: holds the tokens of another sample"}


def test_values_whose_squares_overflow_are_numbers(folder):
    folder.change(set_rows(1, (3, 5), 1e30))
    outcome = folder.judge()
    assert failures(outcome) == {}
    json.dumps(outcome.data, allow_nan=False)


def test_one_equal_row_of_two_layers_is_rounding(tmp_path):
    folder = MadeFolder(tmp_path / "out", [30, 30])

    def edit(data):
        data["hidden_states"][2][:3] = data["hidden_states"][0][:3]

    folder.change(edit)
    assert failures(folder.judge()) == {}


def edited(edit):
    return lambda folder: folder.change_manifest(edit)


MANIFEST = {
    "broken JSON": (lambda folder: folder.manifest.write_text('{"a": 1,\n}'), "is no JSON: line 2, column 1"),
    "no text": (lambda folder: folder.manifest.write_bytes(b"\xff\xfe\x00{"), "is no JSON"),
    "a list": (lambda folder: folder.manifest.write_text("[]"), "holds list, wanted an object"),
    "no version": (edited(lambda values: values.pop("version")), "lacks 'version'"),
    "later version": (edited(lambda values: values.update(version=7)), "has version 7, this program reads 1"),
    "no layers": (edited(lambda values: values.pop("layers")), "lacks 'layers'"),
    "layers of text": (edited(lambda values: values.update(layers=["a"])), "'layers' is ['a'], wanted whole numbers"),
    "no digest": (edited(lambda values: values["samples"][1].pop("sha256")), "sample 1 lacks 'sha256'"),
    "length of text": (
        edited(lambda v: v["samples"][2].update(length="9")),
        "sample 2 'length' is '9', wanted a whole",
    ),
    "negative": (edited(lambda v: v["samples"][2].update(bytes=-9)), "sample 2 'bytes' is -9, wanted a whole number"),
    "outside": (edited(lambda v: v["samples"][0].update(file="../data_0.pt")), "names '../data_0.pt', a file outside"),
    "absolute": (edited(lambda v: v["samples"][0].update(file="/etc/pt")), "sample 0 names '/etc/pt', a file outside"),
    "unread": (edited(lambda v: v["samples"][0].update(file="manifest.json")), "which training does not read"),
    "twice": (edited(lambda v: v["samples"][3].update(file="data_0.pt")), "sample 3 names 'data_0.pt' a second time"),
}


@pytest.mark.parametrize("kind", MANIFEST)
def test_a_broken_manifest_is_refused_in_words(folder, kind):
    edit, text = MANIFEST[kind]
    edit(folder)
    found = failures(folder.judge())
    assert list(found) == ["manifest"]
    assert text in found["manifest"]


def test_a_manifest_without_samples_is_no_pass(folder):
    folder.write_manifest([])
    for path in folder.path.glob("*.pt"):
        path.unlink()
    assert folder.judge().failed


def test_hidden_size_of_the_caller(folder):
    assert failures(folder.judge(hidden_size=HIDDEN)) == {}
    assert failures(folder.judge(hidden_size=128)) == {"hidden size": "16"}

"""Samples that are to be replaced stay until the first of those that replace them is there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from aerie_host.folder import overwrite
from aerie_host.folder.layout import Folder
from aerie_host.shared.refusal import Refusal
from tests.ml_environment.conftest import ANSWERS
from tests.refusals import refused

OTHER = {"layer_ids": [0, 2, 3, 5]}


def contents(folder):
    """Everything there but locks, and what was only wanted."""
    return {
        path.relative_to(folder.path).as_posix(): path.read_bytes()
        for path in folder.path.rglob("*")
        if path.is_file() and "lock" not in path.name and "progress" not in path.name and path != folder.wanted
    }


def with_weights(model, home, change):
    """A copy of a checkpoint with other weights: as whole as the first for who reads headers and sizes alone."""
    copy = Path(shutil.copytree(model, home))
    with safe_open(copy / "model.safetensors", "pt") as file:
        weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping
    change(weights)
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    return copy


def of_another_shape(weights):
    name = "model.layers.1.mlp.up_proj.weight"
    weights[name] = weights[name][:-1].clone()


def not_a_number(weights):
    weights["model.layers.1.mlp.up_proj.weight"].fill_(float("nan"))


def without_a_kernel(engine):
    def fail(_states):
        raise RuntimeError("no kernel image is available for execution on the device")

    engine.change_states = fail


@pytest.mark.parametrize(
    ("weights", "breaks", "error", "message"),
    [
        (of_another_shape, None, RuntimeError, "size mismatch"),
        (not_a_number, None, Refusal, r"sample \d+ .*: not finite at position 0; wanted finite numbers"),
        (None, without_a_kernel, RuntimeError, "no kernel image"),
    ],
    ids=["load", "states", "step"],
)
def test_a_model_that_gives_no_sample_costs_none(extraction, tmp_path, weights, breaks, error, message):
    extraction.run()
    before = contents(extraction.folder)
    model = with_weights(extraction.spec["model"], tmp_path / "broken", weights or (lambda _weights: None))
    other = {**OTHER, "model": str(model)}
    original = extraction.engine

    def broken(job):
        engine = original(job)
        if breaks:
            breaks(engine)
        return engine

    extraction.engine = broken
    with pytest.raises(error, match=message):
        extraction.run(overwrite=True, **other)
    assert contents(extraction.folder) == before
    extraction.engine = original
    assert extraction.run().data["nothing_to_do"]
    with refused(match="changed: layers"):
        extraction.run(**other)
    assert contents(extraction.folder) == before
    # Nor does what an earlier run wanted come back.
    (extraction.output / "data_1.pt").unlink()
    outcome = extraction.run()
    assert (outcome.data["kept"], outcome.data["redone"]) == (len(ANSWERS) - 1, {"file missing": 1})


def test_a_kill_while_samples_are_removed_is_gone_on_from(extraction, tmp_path, monkeypatch):
    extraction.write_data(ANSWERS[:2])
    extraction.run()
    whole = shutil.copytree(extraction.output, tmp_path / "whole")
    old = contents(Folder(whole))
    extraction.run(overwrite=True, **OTHER)
    new = {name: found[0] for name, found in extraction.digests().items()}
    fingerprint = json.loads(extraction.folder.fingerprint.read_text())
    began, moments = 0, 0
    for moment in range(100):
        shutil.rmtree(extraction.output)
        shutil.copytree(whole, extraction.output)
        overwrite.want(extraction.folder, fingerprint)
        left = iter(range(moment))

        def dying(original, left=left):
            def step(*arguments, **named):
                if next(left, None) is None:
                    raise KeyboardInterrupt
                return original(*arguments, **named)

            return step

        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", dying(Path.unlink))
            patched.setattr(Path, "replace", dying(Path.replace))
            try:
                overwrite.begin(extraction.folder)
                break
            except KeyboardInterrupt:
                moments += 1
        if contents(extraction.folder) == old:
            with refused(match="changed: layers"):
                extraction.run(**OTHER)
            assert contents(extraction.folder) == old
            continue
        began += 1
        with refused(match="changed: layers"):
            extraction.run()
        outcome = extraction.run(**OTHER)
        assert outcome.data["extracted"] == 2
        assert {name: found[0] for name, found in extraction.digests().items()} == new
        assert not extraction.folder.replacing.exists()
    # The first rename; then manifest, fingerprint, journal, two samples, and the second rename.
    assert (moments, began) == (7, 6)


def test_the_same_inputs_are_replaced_too_and_gone_on_with(extraction):
    extraction.run()
    before = extraction.digests()
    overwrite.want(extraction.folder, json.loads(extraction.folder.fingerprint.read_text()))
    extraction.folder.wanted.replace(extraction.folder.replacing)
    assert extraction.run().data["extracted"] == len(ANSWERS)
    assert {name: found[0] for name, found in extraction.digests().items()} == {
        name: found[0] for name, found in before.items()
    }


def test_a_sample_that_cannot_be_removed_is_named(extraction, monkeypatch):
    extraction.run()
    extraction.folder.manifest.replace(extraction.folder.wanted)

    def refuse(path, missing_ok=False):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with refused(match="is to be replaced and cannot be removed: Operation not permitted"):
        overwrite.begin(extraction.folder)


def test_the_disk_counts_what_is_removed_and_not_what_stays_under_another_name(extraction, small_disk):
    extraction.write_data(["In Norway " * 30] * 12)
    extraction.spec["output"] = str(small_disk / "out")
    extraction.run()
    free = shutil.disk_usage(small_disk).free
    (small_disk / "filler").write_bytes(b"x" * (free - 100_000))
    outcome = extraction.run(overwrite=True, **OTHER)
    assert (outcome.data["extracted"], outcome.data["overwritten"]) == (12, 12)
    for path in (small_disk / "out").glob("data_*.pt"):
        os.link(path, small_disk / f"kept_{path.name}")
    with refused(match="before loading the model: 12 samples take"):
        extraction.run(overwrite=True)
    assert len(list((small_disk / "out").glob("data_*.pt"))) == 12


def test_check_mode_wants_nothing(extraction):
    extraction.run()
    before = contents(extraction.folder)
    assert extraction.run(check=True, overwrite=True, **OTHER).changed
    assert contents(extraction.folder) == before
    assert not extraction.folder.wanted.exists()


def test_samples_that_may_not_be_removed_are_not_begun_with():
    folder = Folder(Path(tempfile.mkdtemp(dir="/var/tmp")))
    try:
        folder.create()
        folder.path.chmod(0o555)
        folder.state.chmod(0o777)
        child = os.fork()
        if not child:
            # Root may write everywhere.
            os.setuid(65534)
            try:
                overwrite.want(folder, OTHER)
            except Refusal as error:
                os._exit(0 if "may not be written" in str(error) else 2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not folder.wanted.exists()
    finally:
        shutil.rmtree(folder.path)


def test_a_damaged_record_of_a_replacement_costs_no_sample(tmp_path):
    folder = Folder(tmp_path)
    folder.create()
    for number, text in enumerate(("", "{", "{}")):
        folder.sample(number).write_text("a sample")
        folder.replacing.write_text(text)
        with refused(match=r"replacing\.json is damaged.*remove it"):
            overwrite.finish(folder)
        assert len(folder.samples()) == number + 1

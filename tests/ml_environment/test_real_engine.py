"""Extractions by vLLM itself, with the settings at which it could differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from aerie_host.judge import command as judge
from aerie_host.spec import Spec
from tests.ml_environment.conftest import ANSWERS, LAYERS


def extracted(extraction, home, **changes):
    """The result document of one run of the program."""
    (home / "spec.json").write_text(json.dumps({**extraction.spec, **changes}))
    command = [sys.executable, "-m", "aerie_host", "extract", "--spec", str(home / "spec.json")]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=580,
        env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1"},
    )
    assert done.stdout, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_steps_of_one_token_give_the_models_states(extraction, tmp_path):
    document = extracted(extraction, tmp_path, token_budget=1)
    assert not document["failed"], document["msg"]
    assert document["aerie"]["data"]["extracted"] == len(ANSWERS)
    given = {"output": str(extraction.output), "data": str(extraction.data), "layer_ids": LAYERS}
    outcome = judge.run(
        Spec({**given, "model": extraction.spec["model"], "reference_samples": len(ANSWERS)}, "judge"), False
    )
    assert not outcome.failed, outcome.checks.failed
    assert outcome.data["reference"]["files"] == len(ANSWERS)


def test_samples_longer_than_the_model_takes_are_refused_in_our_words(extraction, tmp_path):
    document = extracted(extraction, tmp_path, max_length=512)
    assert document["failed"]
    assert document["msg"] == (
        "length of samples: hidden_states_max_length is 512; the model has 512 positions, and vLLM keeps one "
        "for the token that it samples; wanted at most 511. Remedy: set hidden_states_max_length to 511 or less"
    )

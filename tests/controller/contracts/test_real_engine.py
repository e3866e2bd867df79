"""The automatic contract over the real speculators 0.3.0 and vLLM 0.16, unpatched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible.module_utils.aerie.contracts.automatic import FileReading, automatic
from ansible.module_utils.aerie.contracts.source_tree import SourceTree
from ansible.module_utils.aerie.distributions.installed import site_packages_of
from ansible.module_utils.aerie.shared.checks import Check

GENERATOR = "speculators/data_generation/vllm_hidden_states_generator.py"

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def tree() -> SourceTree:
    path = os.environ.get("AERIE_TEST_ENV")
    if not path:
        pytest.skip("AERIE_TEST_ENV names no environment")
    return SourceTree(site_packages_of(Path(path))[0])


def failures(tree: SourceTree, file: str) -> list[Check]:
    return [
        finding for finding in automatic(FileReading(tree, file), ("vllm", "speculators")) if finding.status == "fail"
    ]


def unpatched(tree: SourceTree) -> bool:
    return "kv_cache_specs=" in (tree.root / GENERATOR).read_text()


def test_facts_1_2_and_3_are_named_without_a_declared_contract(tree: SourceTree) -> None:
    if not unpatched(tree):
        pytest.skip("this environment is patched")
    found = {finding.line: finding for finding in failures(tree, GENERATOR)}
    assert sorted(found) == [136, 148, 194]
    assert "has no parameter kv_cache_specs" in found[136].found
    assert "available_memory) as in vllm/v1/core/kv_cache_utils.py:" in found[136].wanted
    assert "Scheduler needs block_size" in found[148].found
    assert "SchedulerConfig needs is_encoder_decoder" in found[194].found
    assert "vllm/config/scheduler.py:" in found[194].wanted


def test_nothing_else_in_speculators_is_complained_about(tree: SourceTree) -> None:
    files = sorted((tree.root / "speculators").rglob("*.py"))
    assert len(files) > 30
    for path in files:
        name = str(path.relative_to(tree.root))
        assert name == GENERATOR or failures(tree, name) == []


@pytest.mark.parametrize(
    "file", ["vllm/v1/core/sched/scheduler.py", "vllm/v1/executor/multiproc_executor.py", "vllm/v1/engine/core.py"]
)
def test_the_engine_agrees_with_itself(tree: SourceTree, file: str) -> None:
    """vLLM's own files call vLLM rightly, so every complaint about them would be a false one."""
    assert failures(tree, file) == []

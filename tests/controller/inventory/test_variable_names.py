"""A misspelled variable is refused before any connection, wherever it is set; one that something reads never is."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from action_plugins.inventory_check import known_names, mapped_names, role_arguments, unknown_name
from tests.controller.inventory.test_inventory_check import playbook

ROOT = Path(__file__).resolve().parents[3]
(PLAY,) = yaml.safe_load((ROOT / "playbooks" / "check_inventory.yml").read_text())
(OPTIONS,) = (task["inventory_check"] for task in PLAY["tasks"] if "inventory_check" in task)
RENAMED = OPTIONS["renamed"]
PREFIXES = [*(f"{path.name}_" for path in (ROOT / "roles").iterdir()), *OPTIONS["prefixes"]]
ARGUMENTS = role_arguments(ROOT / "roles")
MAPPED = mapped_names(ROOT / "playbooks")
KNOWN = known_names(ARGUMENTS, MAPPED, ROOT / "playbooks", PREFIXES)
MAPPING = (ROOT / "playbooks" / "vars" / "aerie.yml").read_text()
TEMPLATES = jinja2.Environment(autoescape=True)
SPECS = sorted((ROOT / "roles").glob("*/meta/argument_specs.yml"))
SHIPPED = [
    *sorted((ROOT / "inventory").rglob("extraction_hosts.yml")),
    ROOT / "molecule" / "ssh_hosts" / "inventory" / "group_vars" / "extraction_hosts.yml",
    ROOT / "molecule" / "default" / "host_vars" / "local.yml",
]


def specified(path: Path) -> dict[str, dict[str, Any]]:
    """All arguments of one role."""
    entries = yaml.safe_load(path.read_text())["argument_specs"].values()
    return {name: spec for entry in entries for name, spec in entry["options"].items()}


def problem(name: str) -> str | None:
    return unknown_name(name, KNOWN, PREFIXES, RENAMED)


def refusals(tmp_path: Path, *arguments: str) -> str:
    """What the check named `names` found, in a run that must have been refused before it connected."""
    done: subprocess.CompletedProcess[str] = playbook(tmp_path, "--tags", "gates", *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    report = json.loads((tmp_path / "reports" / "latest" / "report.json").read_text())
    assert report["verdict"] == "could not run"
    (host,) = report["hosts"].values()
    assert list(host["sections"]) == ["inventory"]
    (failed,) = [c for c in host["sections"]["inventory"]["checks"] if c["name"] == "names" and c["status"] == "fail"]
    return str(failed["found"])


def test_a_misspelling_is_named_with_its_place_and_the_name_that_is_meant(tmp_path: Path) -> None:
    wrong = {
        "group_vars/extraction_hosts.yml": "aerie_home: /x\nhidden_states_max_lenght: 4096\n",
        "host_vars/gpu-1.yml": "\n\nhidden_state_layer_ids: [1]\n",
        "more.yml": "vllm_comit: abc\n",
    }
    (tmp_path / "hosts.yml").write_text("extraction_hosts:\n  hosts:\n    gpu-1:\n      aerie_stack: x\n")
    for name, text in wrong.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    extra = ("-e", "truth_sead=1 site_rack=7", "-e", '{"rollback_waht": "environment"}', "-e", "@more.yml")
    found = refusals(tmp_path, "-i", "hosts.yml", *extra).split("; ")
    hosts, group, host, file = (tmp_path / one for one in ("hosts.yml", *wrong))
    assert found == [
        f"aerie_stack ({hosts}, line 4, host gpu-1): is aerie_stack_name meant?",
        f"hidden_state_layer_ids ({host}, line 3, host gpu-1): is hidden_states_layer_ids meant?",
        f"hidden_states_max_lenght ({group}, line 2, host gpu-1): is hidden_states_max_length meant?",
        "rollback_waht (-e): is rollback_what meant?",
        "truth_sead (-e): is truth_seed meant?",
        f"vllm_comit ({file}, line 1, host gpu-1): is vllm_commit meant?",
    ]


@pytest.mark.parametrize("name", ["ML_ENV_PATH", "ml-env-path", "hidden-states-max-length", "hidden_state_max_length"])
def test_another_spelling_of_a_name_is_a_misspelling(name: str) -> None:
    assert str(problem(name)).startswith("is ")


@pytest.mark.parametrize(
    "name", ["my_env_path", "html_env_path", "xml_env_path", "vllm", "hidden_states", "environment"]
)
def test_names_of_others_are_theirs(name: str) -> None:
    assert problem(name) is None


def test_a_former_name_is_refused_with_the_new_one_and_its_place(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yml"
    hosts.write_text("extraction_hosts:\n  hosts:\n    gpu-1:\n      gpu_host_end_leftovers: true\n")
    found = refusals(tmp_path, "-i", "hosts.yml", "-e", "gpu_host_colour=red").split("; ")
    assert found == [
        "gpu_host_colour (-e): variables gpu_host_* were renamed to host_gates_*",
        f"gpu_host_end_leftovers ({hosts}, line 4, host gpu-1): renamed to host_gates_end_leftovers",
    ]


def test_names_that_are_no_text_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("extraction_hosts:\n  hosts:\n    gpu-1:\n      aerie_stack: x\n      1: x\n")
    assert refusals(tmp_path, "-i", "hosts.yml").endswith("is aerie_stack_name meant?")


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.parent.parent.name)
def test_every_argument_of_every_role_is_accepted(path: Path) -> None:
    assert specified(path)
    assert {name for name in specified(path) if problem(name)} == set()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: "-".join(path.relative_to(ROOT).parts[:2]))
def test_every_variable_that_is_shipped_is_accepted(path: Path) -> None:
    names: dict[str, Any] = yaml.safe_load(path.read_text())
    assert {name for name in names if problem(name)} == set()


def test_every_argument_has_the_name_of_its_role_for_prefix() -> None:
    assert len(SPECS) == len(list((ROOT / "roles").iterdir()))
    assert all(name.startswith(tuple(PREFIXES)) for name in KNOWN)


def test_whatever_the_mapping_reads_is_ours_by_its_prefix_and_is_an_argument_or_a_site_variable() -> None:
    read = {node.name for node in TEMPLATES.parse(MAPPING).find_all(jinja2.nodes.Name)}
    others = {name for name in read - KNOWN - MAPPED if not name.startswith("__")}
    assert others == {"inventory_hostname", "lookup", "playbook_dir", "query"}
    # A misspelling in the mapping would make the wrong name a known one.
    roles = tuple(f"{path.name}_" for path in (ROOT / "roles").iterdir())
    assert {name for name in read & KNOWN if name.startswith(roles)} <= set(ARGUMENTS)


def test_the_gpu_example_names_every_variable_that_the_mapping_reads_and_the_defaults() -> None:
    read = {node.name for node in TEMPLATES.parse(MAPPING).find_all(jinja2.nodes.Name)}
    example = (ROOT / "inventory" / "gpu" / "group_vars" / "extraction_hosts.yml").read_text()
    commented = yaml.safe_load("\n".join(re.findall(r"^# ([a-z]\w+: .+)$", example, re.MULTILINE)))
    assert (read & KNOWN) - MAPPED - set(yaml.safe_load(example)) - set(commented) == set()
    assert {name for name in commented if problem(name)} == set()
    specs = {name: spec for path in SPECS for name, spec in specified(path).items()}
    defaults = {name: specs[name]["default"] for name in commented if "default" in specs.get(name, {})}
    assert len(defaults) > 9
    assert {name: commented[name] for name in defaults} == defaults


@pytest.mark.parametrize("name", ["__ml_env_result", "_aerie_home", "ansible_host", "site_rack", "ml_environment"])
def test_internal_names_and_those_of_others_are_none_of_ours(name: str) -> None:
    assert problem(name) is None


def test_a_name_like_none_is_refused_by_its_prefix_alone() -> None:
    assert problem("vllm_xqj") == "no such variable"


def fallbacks() -> list[tuple[str, jinja2.nodes.Expr]]:
    """Each site variable for which the mapping names a fallback, and that fallback."""
    return [
        (node.node.name, node.args[0])
        for node in TEMPLATES.parse(MAPPING).find_all(jinja2.nodes.Filter)
        if node.name == "default" and isinstance(node.node, jinja2.nodes.Name)
    ]


def test_the_mapping_takes_every_default_of_a_role_from_that_role() -> None:
    taken = {}
    for name, fallback in fallbacks():
        if isinstance(fallback, jinja2.nodes.Getattr):
            assert isinstance(fallback.node, jinja2.nodes.Name)
            assert fallback.node.name == "__aerie_defaults"
            taken[name] = fallback.attr
        else:
            # A default that is written here is of a variable that no role has.
            assert name not in ARGUMENTS
            assert name.startswith("vllm_") or name in {"__ml_env_result", "__package_patches_result"}, name
    assert {name for name in taken if name in ARGUMENTS} == {name for name in taken if taken[name] == name}
    assert {name for name in taken if name not in ARGUMENTS} == {
        "truth_architectures", "truth_seed", "truth_target_model", "truth_tensor_parallel_sizes",
        "vllm_trust_first_download",
    }  # fmt: skip
    assert all("default" in ARGUMENTS[argument] for argument in taken.values())


def test_an_argument_that_follows_another_roles_variable_has_its_default() -> None:
    followed = {}
    for name, value in yaml.safe_load(MAPPING).items():
        match = re.fullmatch(r"\{\{ (\w+) \| default\(__aerie_defaults\.(\w+)(?:, true)?\) \}\}", str(value))
        if match and match[1] == match[2]:
            followed[name] = match[2]
    assert {"host_gates_gpu_memory_utilization", "host_gates_tensor_parallel_size", "host_gates_shard"} <= set(followed)
    assert {name: ARGUMENTS[name]["default"] for name in followed} == {
        name: ARGUMENTS[source]["default"] for name, source in followed.items()
    }

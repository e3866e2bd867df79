# SPDX-License-Identifier: Apache-2.0
"""Judge the inventory and the request on the controller alone; nothing here connects to a host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Ansible's own words, and what Molecule gives with every playbook.
SPECIAL_TAGS = {"all", "tagged", "untagged", "always", "never", "notest"}
MOLECULE = "molecule-"


def check(name: str, problems: Iterable[str], wanted: str, remedy: str) -> dict[str, str]:
    """One check of the report: it fails when there is a problem."""
    found = "; ".join(problems)
    return {
        "name": name,
        "status": "fail" if found else "pass",
        "found": found or "yes",
        "wanted": wanted,
        "remedy": remedy if found else "",
    }


def unknown_tags(asked: Iterable[str], known: Iterable[str]) -> list[str]:
    """Which of the tags asked for stand nowhere in the playbooks."""
    return sorted(tag for tag in set(asked) - set(known) - SPECIAL_TAGS if not tag.startswith(MOLECULE))


def stop_with_others(asked: Iterable[str]) -> list[str]:
    """The tag ``stop`` beside others, in words: what it ends is what they would begin, or wait for."""
    others = sorted(set(asked) - {"stop", "always"})
    return [f"stop together with {', '.join(others)}"] if "stop" in asked and others else []


def missing_values(host: str, values: Mapping[str, Any], required: Mapping[str, str]) -> list[str]:
    """Which required variables a host has no usable value for, each with what it stands for."""
    missing = []
    for name, meaning in required.items():
        if name == "ansible_host" and values.get("ansible_connection") == "local":
            continue
        try:
            value = values.get(name)
        except AnsibleError as error:
            missing.append(f"{host}: {name} cannot be worked out: {error}")
            continue
        if value in (None, "", [], {}):
            missing.append(f"{host}: {name} ({meaning})")
    return missing


class ActionModule(ActionBase):
    """Fails with all problems in one message; unknown tags, no host, missing values."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the section `inventory` of the report."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        values = task_vars or {}
        arguments = self._task.args
        group, known, required = arguments["group"], arguments["tags"], arguments["required"]
        to_run = list(values.get("ansible_run_tags", []))
        asked = [*to_run, *values.get("ansible_skip_tags", [])]
        members = values.get("groups", {}).get(group, [])
        chosen = [host for host in members if host in values.get("ansible_play_hosts_all", [])]
        hostvars = values.get("hostvars", {})
        missing = [line for host in chosen for line in missing_values(host, hostvars[host], required)]
        stacks = {path.stem for path in Path(arguments["stacks"]).glob("*.yml")}
        names = {str(hostvars[host].get("aerie_stack_name")) for host in chosen} - {"None"}
        checks = [
            check(
                "tags",
                [*(f"unknown tag {tag}" for tag in unknown_tags(asked, known)), *stop_with_others(to_run)],
                f"only {', '.join(known)}; stop alone",
                "correct --tags or --skip-tags",
            ),
            check(
                "hosts",
                [] if chosen else [f"no host of the group {group} is in the inventory and within --limit"],
                f"at least one host of the group {group}",
                f"give an inventory with the group {group} (-i inventory/gpu), and a --limit that matches a host of it",
            ),
            check(
                "stack",
                [f"no stack {name}" for name in sorted(names - stacks)],
                f"one of {', '.join(sorted(stacks))}",
                "correct aerie_stack_name",
            ),
            check("values", missing, "a value for each", "fill them in, in hosts.yml and group_vars of the inventory"),
        ]
        failed = [item for item in checks if item["status"] == "fail"]
        result["changed"] = False
        result["aerie"] = {"section": "inventory", "checks": checks, "data": {"summary": f"{len(chosen)} hosts"}}
        if failed:
            result["failed"] = True
            result["msg"] = "\n".join(f"{c['name']}: {c['found']}. Remedy: {c['remedy']}" for c in failed)
        return result

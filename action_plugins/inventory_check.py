# SPDX-License-Identifier: Apache-2.0
"""Judge the inventory and the request on the controller alone; nothing here connects to a host."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import yaml
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

try:
    from ansible._internal._datatag._tags import Origin
except ImportError:  # ansible-core 2.17 has the place at the name itself
    Origin = None  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Ansible's own words, and what Molecule gives with every playbook.
SPECIAL_TAGS = {"all", "tagged", "untagged", "always", "never", "notest"}
MOLECULE = "molecule-"
# How alike a name that has no prefix of ours must be to one of ours to be a slip of the pen: about one letter in 25.
ALIKE = 0.96
# The place of a variable of the command line; those of files named there have a line.
EXTRA = "-e"


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


def known_names(roles: Path, playbooks: Path, prefixes: Iterable[str]) -> set[str]:
    """What an inventory may set: every argument of the roles, and what the playbooks read without defining it."""
    names: set[str] = set()
    for path in roles.glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            names.update(entry.get("options", {}))
    mapping = playbooks / "vars" / "aerie.yml"
    read = {
        node.name
        for path in [mapping, *playbooks.glob("*.yml")]
        for node in jinja2.Environment(autoescape=True).parse(path.read_text()).find_all(jinja2.nodes.Name)
    }
    # What the mapping defines is for the playbooks alone: from an inventory it would have no effect.
    read -= set(yaml.safe_load(mapping.read_text()))
    return names | {name for name in read if name.startswith(tuple(prefixes))}


def unknown_name(name: str, known: set[str], prefixes: Iterable[str]) -> str | None:
    """What is wrong with a variable's name, in words; None when it is known, or none of ours."""
    if name in known or name.startswith("_"):
        return None
    written = name.lower().replace("-", "_")
    ours = written.startswith(tuple(prefixes))
    near = difflib.get_close_matches(written, known, n=1, cutoff=0.6 if ours else ALIKE)
    if near:
        return f"is {near[0]} meant?"
    return "no such variable" if ours else None


def place_of(name: str, extra: Iterable[str]) -> str:
    """Where a variable is set, as far as Ansible tells: file and line, or the command line."""
    origin = Origin.get_tag(name) if Origin is not None else None
    path, line = (origin.path, origin.line_num) if origin else getattr(name, "ansible_pos", (None, 0, 0))[:2]
    if path:
        return f"{path}, line {line}" if line else str(path)
    return EXTRA if name in extra else ""


class ActionModule(ActionBase):
    """Fails with all problems in one message; unknown tags, no host, missing values, unknown variables."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def unknown_names(self, hostvars: Mapping[str, Any], hosts: Iterable[str]) -> list[str]:
        """The variables of these hosts that have a name of ours, or nearly, and are not known; where each is set."""
        arguments = self._task.args
        roles = Path(arguments["roles"])
        prefixes = [*(f"{path.name}_" for path in roles.iterdir()), *arguments["prefixes"]]
        known, extra = known_names(roles, Path(arguments["playbooks"]), prefixes), load_extra_vars(self._loader)
        where: dict[tuple[str, str], list[str]] = {}
        for host in hosts:
            # YAML has keys that are no text, 1 or true; none of those is ours.
            for name in filter(lambda key: isinstance(key, str), hostvars[host]):
                where.setdefault((name, place_of(name, extra)), []).append(f"host {host}")
        return [
            f"{name} ({', '.join([place] if place == EXTRA else filter(None, [place, *named]))}): {wrong}"
            for (name, place), named in sorted(where.items())
            if (wrong := unknown_name(name, known, prefixes))
        ]

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
            check(
                "names",
                self.unknown_names(hostvars, chosen),
                "variables that a role or a playbook reads",
                "correct the name or remove it; inventory/gpu and roles/*/README.md list what there is",
            ),
            check("values", missing, "a value for each", "fill them in, in hosts.yml and group_vars of the inventory"),
        ]
        failed = [item for item in checks if item["status"] == "fail"]
        result["changed"] = False
        data = {"summary": f"{len(chosen)} hosts", "hosts": [] if failed else chosen}
        result["aerie"] = {"section": "inventory", "checks": checks, "data": data}
        if failed:
            result["failed"] = True
            result["msg"] = "\n".join(f"{c['name']}: {c['found']}. Remedy: {c['remedy']}" for c in failed)
        return result

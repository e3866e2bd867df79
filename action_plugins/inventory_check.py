# SPDX-License-Identifier: Apache-2.0
"""Check the inventory and the request on the controller; nothing here connects to a host."""

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
except ImportError:  # ansible-core 2.17 keeps the place as an attribute of the name
    Origin = None  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The variable that names the stack of a host.
STACK = "aerie_stack_name"
# Tags that Ansible defines, and the prefix of those that Molecule adds to every playbook.
SPECIAL_TAGS = {"all", "tagged", "untagged", "always", "never", "notest"}
MOLECULE = "molecule-"
# A name without one of our prefixes counts as a misspelling when it is this similar to one of ours: one letter in 25.
SIMILAR = 0.96
# The place of a variable that the command line sets; variables of a file named there have a file and a line.
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


def unknown_tags(requested: Iterable[str], known: Iterable[str]) -> list[str]:
    """The requested tags that no playbook has."""
    return sorted(tag for tag in set(requested) - set(known) - SPECIAL_TAGS if not tag.startswith(MOLECULE))


def stop_with_others(requested: Iterable[str]) -> list[str]:
    """A problem when the tag ``stop`` comes with other tags: it ends what they start or wait for."""
    others = sorted(set(requested) - {"stop", "always"})
    return [f"stop together with {', '.join(others)}"] if "stop" in requested and others else []


def missing_values(host: str, values: Mapping[str, Any], required: Mapping[str, str]) -> list[str]:
    """The required variables for which a host has no usable value, each with its meaning."""
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


def role_arguments(roles: Path) -> dict[str, dict[str, Any]]:
    """The arguments of all roles and all their entry points, by name, as their argument specifications say."""
    return {
        name: option
        for path in sorted(roles.glob("*/meta/argument_specs.yml"))
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values()
        for name, option in entry.get("options", {}).items()
    }


def mapped_names(playbooks: Path) -> set[str]:
    """The variables that ``vars/aerie.yml`` sets."""
    return set(yaml.safe_load((playbooks / "vars" / "aerie.yml").read_text()))


def required_arguments(arguments: Mapping[str, dict[str, Any]], mapped: set[str]) -> dict[str, str]:
    """The arguments that a site must set: roles require them and the mapping does not set them.

    Each comes with the first sentence of its description.
    """
    return {
        name: str(option["description"]).partition(". ")[0].rstrip(".")
        for name, option in arguments.items()
        if option.get("required") and name not in mapped
    }


def known_names(arguments: Iterable[str], mapped: set[str], playbooks: Path, prefixes: Iterable[str]) -> set[str]:
    """The variables that an inventory may set: the roles' arguments, and what the playbooks read without setting it."""
    read = {
        node.name
        for path in [playbooks / "vars" / "aerie.yml", *playbooks.glob("*.yml")]
        for node in jinja2.Environment(autoescape=True).parse(path.read_text()).find_all(jinja2.nodes.Name)
    }
    # In an inventory, what the mapping sets would have no effect.
    return {*arguments, *(name for name in read - mapped if name.startswith(tuple(prefixes)))}


def unknown_name(name: str, known: set[str], prefixes: Iterable[str], renamed: Mapping[str, str]) -> str | None:
    """What is wrong with a variable's name; None when it is known, or none of ours.

    ``renamed`` maps the prefix of former names to the prefix that replaced it.
    """
    if name in known or name.startswith("_"):
        return None
    spelled = name.lower().replace("-", "_")
    for former, prefix in renamed.items():
        if spelled.startswith(former):
            new = prefix + spelled.removeprefix(former)
            return f"renamed to {new}" if new in known else f"variables {former}* were renamed to {prefix}*"
    ours = spelled.startswith(tuple(prefixes))
    similar = difflib.get_close_matches(spelled, known, n=1, cutoff=0.6 if ours else SIMILAR)
    if similar:
        return f"is {similar[0]} meant?"
    return "no such variable" if ours else None


def place_of(name: str, extra: Iterable[str]) -> str:
    """Where a variable is set: file and line, or the command line; empty when Ansible does not know."""
    origin = Origin.get_tag(name) if Origin is not None else None
    path, line = (origin.path, origin.line_num) if origin else getattr(name, "ansible_pos", (None, 0, 0))[:2]
    if path:
        return f"{path}, line {line}" if line else str(path)
    return EXTRA if name in extra else ""


class ActionModule(ActionBase):
    """Fails with all problems in one message: tags, hosts, stacks, names and values of variables."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def unknown_names(
        self, hostvars: Mapping[str, Any], hosts: Iterable[str], known: set[str], prefixes: Iterable[str]
    ) -> list[str]:
        """The variables of these hosts that look like ours and are not known, each with the place where it is set."""
        renamed, extra = self._task.args["renamed"], load_extra_vars(self._loader)
        found: dict[tuple[str, str], list[str]] = {}
        for host in hosts:
            # YAML has keys that are no text, such as 1 and true; none of those is ours.
            for name in filter(lambda key: isinstance(key, str), hostvars[host]):
                found.setdefault((name, place_of(name, extra)), []).append(f"host {host}")
        return [
            f"{name} ({', '.join([place] if place == EXTRA else filter(None, [place, *named]))}): {problem}"
            for (name, place), named in sorted(found.items())
            if (problem := unknown_name(name, known, prefixes, renamed))
        ]

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the section `inventory` of the report."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        values, options = task_vars or {}, self._task.args
        roles, playbooks = Path(options["roles"]), Path(options["playbooks"])
        arguments, mapped = role_arguments(roles), mapped_names(playbooks)
        prefixes = [*(f"{path.name}_" for path in roles.iterdir()), *options["prefixes"], *options["renamed"]]
        known = known_names(arguments, mapped, playbooks, prefixes)
        required = {**options["required"], **required_arguments(arguments, mapped)}
        hosts = [
            host
            for host in values.get("groups", {}).get(options["group"], [])
            if host in values.get("ansible_play_hosts_all", [])
        ]
        if options.get("only_stack", False):
            hosts, required = hosts[:1], {STACK: required[STACK]}
        hostvars = values.get("hostvars", {})
        missing = [line for host in hosts for line in missing_values(host, hostvars[host], required)]
        stacks = {path.stem for path in Path(options["stacks"]).glob("*.yml")}
        chosen_stacks = {str(hostvars[host].get(STACK)) for host in hosts} - {"None"}
        selected = list(values.get("ansible_run_tags", []))
        requested = [*selected, *values.get("ansible_skip_tags", [])]
        group = options["group"]
        checks = [
            check(
                "tags",
                [
                    *(f"unknown tag {tag}" for tag in unknown_tags(requested, options["tags"])),
                    *stop_with_others(selected),
                ],
                f"only {', '.join(options['tags'])}; stop alone",
                "correct --tags or --skip-tags",
            ),
            check(
                "hosts",
                [] if hosts else [f"no host of the group {group} is in the inventory and within --limit"],
                f"at least one host of the group {group}",
                f"give an inventory with the group {group} (-i inventory/gpu), and a --limit that matches a host of it",
            ),
            check(
                "stack",
                [f"no stack {name}" for name in sorted(chosen_stacks - stacks)],
                f"one of {', '.join(sorted(stacks))}",
                f"correct {STACK}",
            ),
            check(
                "names",
                self.unknown_names(hostvars, hosts, known, prefixes),
                "variables that a role or a playbook reads",
                "correct the name or remove it; inventory/gpu and roles/*/README.md list the variables",
            ),
            check("values", missing, "a value for each", "fill them in, in hosts.yml and group_vars of the inventory"),
        ]
        return {**result, **outcome(checks, hosts)}


def outcome(checks: list[dict[str, str]], hosts: list[str]) -> dict[str, Any]:
    """The result of the task: its section of the report, and all failures in one message."""
    failed = [check for check in checks if check["status"] == "fail"]
    data = {"summary": f"{len(hosts)} hosts", "hosts": [] if failed else hosts}
    result: dict[str, Any] = {
        "changed": False,
        "aerie": {"section": "inventory", "checks": checks, "data": data},
    }
    if failed:
        result["failed"] = True
        result["msg"] = "\n".join(f"{c['name']}: {c['found']}. Remedy: {c['remedy']}" for c in failed)
    return result

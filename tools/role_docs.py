#!/usr/bin/env python3
"""Keep the README table and the defaults of each role in step with its meta/argument_specs.yml.

Without options the tables are rewritten; with --check nothing is written and every disagreement is listed.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parent.parent / "roles"
BEGIN, END = "<!-- variables: begin -->", "<!-- variables: end -->"
COMMENTED = re.compile(r"^#\s*([a-z][a-z0-9_]*):", re.MULTILINE)


def options_of(role: Path) -> dict[str, dict[str, Any]]:
    """The options of the entry point main."""
    spec = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())
    options: dict[str, dict[str, Any]] = spec["argument_specs"]["main"].get("options", {})
    return options


def shown(value: object) -> str:
    """A default as the inventory would say it."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6).replace("\n...", "").strip()
    return f"`{text}`"


def row(name: str, option: dict[str, Any]) -> str:
    """One line of the table."""
    description = option.get("description", "")
    text = " ".join(description if isinstance(description, list) else [description])
    if option.get("choices"):
        text += f" One of {', '.join(f'`{choice}`' for choice in option['choices'])}."
    kind = option.get("type", "str") + (f" of {option['elements']}" if option.get("elements") else "")
    without = "**required**" if option.get("required") else ""
    default = shown(option["default"]) if "default" in option else without
    return f"| `{name}` | {kind} | {default} | {' '.join(text.split()).replace('|', chr(92) + '|')} |"


def table(options: dict[str, dict[str, Any]]) -> str:
    """The table, required variables first."""
    names = sorted(options, key=lambda name: (not options[name].get("required", False), list(options).index(name)))
    lines = ["| variable | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([*lines, *(row(name, options[name]) for name in names)])


def with_table(readme: str, options: dict[str, dict[str, Any]]) -> str:
    """The README with its table renewed. Raises `ValueError` when it has no place for one."""
    if BEGIN not in readme or END not in readme:
        raise ValueError(f"README.md has no lines {BEGIN} and {END}")
    head, rest = readme.split(BEGIN, 1)
    return f"{head}{BEGIN}\n{table(options)}\n{END}{rest.split(END, 1)[1]}"


def defaults_problems(role: Path, options: dict[str, dict[str, Any]]) -> list[str]:
    """Where defaults/main.yml and the argument spec say different things."""
    path = role / "defaults" / "main.yml"
    text = path.read_text() if path.is_file() else ""
    values: dict[str, Any] = yaml.safe_load(text) or {}
    commented = set(COMMENTED.findall(text))
    problems = [
        f"{name} stands in defaults but not in the argument spec" for name in sorted(set(values) - set(options))
    ]
    for name, option in options.items():
        if not name.startswith(f"{role.name}_"):
            problems.append(f"{name} does not begin with the role's name")
        if option.get("required"):
            if name in values:
                problems.append(f"{name} is required and has a default")
            elif name not in commented:
                problems.append(f"{name} is required and is no commented entry of defaults")
        elif name not in values:
            problems.append(f"{name} is optional and has no default")
        elif "default" not in option:
            problems.append(f"{name} has a default that the argument spec does not tell")
        elif option["default"] != values[name]:
            problems.append(f"{name}: default {values[name]!r}, argument spec {option['default']!r}")
    return problems


def main() -> int:
    """Command line; 0 in step, 1 not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    problems: list[str] = []
    roles = sorted(path for path in ROLES.iterdir() if (path / "tasks").is_dir())
    for role in roles:
        readme = role / "README.md"
        try:
            options = options_of(role)
            old = readme.read_text()
            new = with_table(old, options)
        except (OSError, ValueError, KeyError) as error:
            problems.append(f"{role.name}: {error}")
            continue
        problems += [f"{role.name}: {problem}" for problem in defaults_problems(role, options)]
        if check and new != old:
            problems.append(f"{role.name}: the table of README.md is out of step: run make format")
        elif new != old:
            readme.write_text(new)
    print("\n".join(problems) or f"roles: {len(roles)}, README tables, defaults and argument specs agree")
    return 1 if problems or not roles else 0


if __name__ == "__main__":
    sys.exit(main())

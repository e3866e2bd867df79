"""What a command takes for what is not given is what the role that calls it takes."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import yaml

from aerie_host.__main__ import COMMANDS
from aerie_host.spec import Spec

ROLES = Path(__file__).parents[2] / "roles"
KINDS = {
    name
    for name, kind in vars(Spec).items()
    if inspect.isfunction(kind) and not name.startswith("_") and "default" in inspect.signature(kind).parameters
}
# A variable as it is, or made a number or a flag.
VARIABLE = re.compile(r"\{\{ (\w+)(?: \| (?:int|float|bool))? \}\}")
# Modules that read the specification for a command.
READERS = {"extract": ["aerie_host.extract.job"], "judge": ["aerie_host.judge.request"]}
DIFFERENT = {
    # By hand nothing has to be asked: the manifest says which shard it is.
    ("judge", "shard"),
}


def tasks(items):
    for task in items:
        yield task
        yield from tasks(task.get("block", []))


def defaults_of_roles():
    """Command and name of an input, and the default of the variable that a role gives for it."""
    for role in ROLES.iterdir():
        main = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]
        for file in (role / "tasks").glob("*.yml"):
            for task in tasks(yaml.safe_load(file.read_text())):
                called = task.get("host_program") or task.get("host_job") or {}
                for name, given in called.get("spec", {}).items():
                    match = VARIABLE.fullmatch(str(given))
                    option = main["options"].get(match[1], {}) if match else {}
                    if "default" in option and "{{" not in str(option["default"]):
                        yield (called["command"], name), option["default"]


def defaults_of_program():
    """The same as the program reads it."""
    for command, where in COMMANDS.items():
        for name in [where.module, *READERS.get(command, [])]:
            module = importlib.import_module(name)
            for call in ast.walk(ast.parse(inspect.getsource(module))):
                if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
                    continue
                if ast.unparse(call.func.value) == "spec" and call.func.attr in KINDS:
                    # choice(name, choices, default), the others (name, default).
                    rest = call.args[2:] if call.func.attr == "choice" else call.args[1:]
                    if rest:
                        value = eval(ast.unparse(rest[0]), vars(module))  # noqa: S307 - our own source
                        yield (command, call.args[0].value), value


def test_the_program_by_hand_has_the_defaults_of_the_roles():
    roles, program = dict(defaults_of_roles()), dict(defaults_of_program())
    both = sorted(set(roles) & set(program) - DIFFERENT)
    assert {("extract", "gpu_memory_utilization"), ("ready", "draft_layers"), ("truth", "seed")} <= set(both)
    assert {name: program[name] for name in both} == {name: roles[name] for name in both}
    assert all(roles[name] != program[name] for name in DIFFERENT)
    assert len(both) > 25, both

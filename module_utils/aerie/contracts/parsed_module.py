"""One Python module, parsed: the definitions, re-exports and values that it has at run time."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ansible.module_utils.aerie.contracts.syntax_trees import (
    Definition,
    absolute_module,
    assignments,
    runtime_statements,
    string_pairs,
)

if TYPE_CHECKING:
    from pathlib import Path


class SourceError(Exception):
    """A module exists but cannot be read as Python source by this interpreter."""


class Export(NamedTuple):
    """A name that a module takes from elsewhere."""

    module: str
    name: str  # empty: the module itself


class Module:
    """One parsed module and the names it has at the top level at run time."""

    def __init__(self, name: str, path: Path, is_package: bool) -> None:
        self.name = name
        self.path = path
        self.is_package = is_package
        self.text = path.read_text(encoding="utf-8")
        try:
            self.tree = ast.parse(self.text, filename=str(path))
        except SyntaxError as error:
            raise SourceError(f"{path}:{error.lineno}: {error.msg}") from error
        self.definitions: dict[str, list[Definition]] = {}
        self.exports: dict[str, Export] = {}
        self.stars: list[str] = []
        self.values: dict[str, ast.AST] = {}
        self.lazy: dict[str, str] = {}
        self._collect(self.tree.body)
        self.has_getattr = "__getattr__" in self.definitions

    def _collect(self, body: list[ast.stmt]) -> None:
        for statement in runtime_statements(body):
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.definitions.setdefault(statement.name, []).append(statement)
            elif isinstance(statement, ast.ImportFrom):
                source = absolute_module(self.name, self.is_package, statement)
                for alias in statement.names:
                    if alias.name == "*":
                        self.stars.append(source)
                    else:
                        self.exports[alias.asname or alias.name] = Export(source, alias.name)
            elif isinstance(statement, ast.Import):
                for alias in statement.names:
                    if alias.asname:
                        self.exports[alias.asname] = Export(alias.name, "")
                    else:
                        root = alias.name.split(".")[0]
                        self.exports[root] = Export(root, "")
            else:
                self._collect_values(statement)

    def _collect_values(self, statement: ast.stmt) -> None:
        for target, value in assignments(statement):
            if isinstance(target, ast.Name):
                self.values[target.id] = value if value is not None else target
                if isinstance(value, ast.Dict):
                    self.lazy.update(string_pairs(value))

"""Reading Python syntax trees: names, assignments, class members, statements that run."""

from __future__ import annotations

import ast
from typing import Iterator, Union

Definition = Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef]


def string_pairs(table: ast.Dict) -> Iterator[tuple[str, str]]:
    """The entries of a dict display whose key and value are both string literals."""
    for key, value in zip(table.keys, table.values):
        pair = (getattr(key, "value", None), getattr(value, "value", None))
        if isinstance(pair[0], str) and isinstance(pair[1], str):
            yield pair[0], pair[1]


def assignments(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Each (target, value) of an assignment statement; nothing for other statements."""
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Tuple):
                for element in target.elts:
                    yield element, statement.value
            else:
                yield target, statement.value
    elif isinstance(statement, ast.AnnAssign):
        yield statement.target, statement.value


def is_type_checking(test: ast.expr) -> bool:
    """True for ``TYPE_CHECKING`` and ``typing.TYPE_CHECKING``, which are False at run time."""
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def runtime_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of ``body``, branches included, without what only type checkers see."""
    for statement in body:
        if isinstance(statement, ast.If):
            if not is_type_checking(statement.test):
                yield from runtime_statements(statement.body)
            yield from runtime_statements(statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from runtime_statements(statement.body)
            for handler in statement.handlers:
                yield from runtime_statements(handler.body)
            yield from runtime_statements(statement.orelse)
            yield from runtime_statements(statement.finalbody)
        elif isinstance(statement, (ast.With, ast.For)):
            yield from runtime_statements(statement.body)
        else:
            yield statement


def absolute_module(name: str, is_package: bool, statement: ast.ImportFrom) -> str:
    """The absolute name of the module that a ``from … import`` statement in module ``name`` reads."""
    if not statement.level:
        return statement.module or ""
    parts = name.split(".")
    drop = statement.level - 1 if is_package else statement.level
    base = parts[: len(parts) - drop] if drop else parts
    return ".".join(base + ([statement.module] if statement.module else []))


def is_overload(node: Definition) -> bool:
    """True for a definition that only types see."""
    return any(last_name(decorator) == "overload" for decorator in node.decorator_list)


def class_members(node: ast.ClassDef) -> dict[str, list[ast.AST]]:
    """Every name that a class body or a ``self.x = …`` in its methods gives; definitions before values."""
    members: dict[str, list[ast.AST]] = {}
    for statement in runtime_statements(node.body):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            members.setdefault(statement.name, []).append(statement)
        for target, _ in assignments(statement):
            if isinstance(target, ast.Name):
                members.setdefault(target.id, []).append(statement)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for method in [statement for statement in node.body if isinstance(statement, functions)]:
        for inner in ast.walk(method):
            if isinstance(inner, (ast.Assign, ast.AnnAssign)):
                for target, _ in assignments(inner):
                    if isinstance(target, ast.Attribute) and dotted_names(target.value) == ["self"]:
                        members.setdefault(target.attr, []).append(inner)
    return members


def dotted_names(node: ast.AST) -> list[str]:
    """``a.b.c`` as ``["a", "b", "c"]``; empty for anything that is not a plain dotted name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


def last_name(node: ast.AST) -> str:
    """The last part of a decorator, base or annotation: ``config`` for ``@a.config(…)``."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Subscript):
        node = node.value
    names = dotted_names(node)
    return names[-1] if names else ""

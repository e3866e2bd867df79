"""What a call of a class or function takes, read from its source: parameters, and the fields of data classes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple, Union

from ansible.module_utils.aerie.contracts.syntax_trees import dotted_names, last_name, runtime_statements

if TYPE_CHECKING:
    from ansible.module_utils.aerie.contracts.source_tree import (
        SourceTree,
        Symbol,
    )

POSITIONAL_ONLY, ORDINARY, KEYWORD_ONLY = "positional only", "ordinary", "keyword only"
FunctionDef = Union[ast.FunctionDef, ast.AsyncFunctionDef]
MAX_SHOWN = 8
FIELD_FUNCTIONS = ("Field", "field", "PydanticField")


class Parameter(NamedTuple):
    """One parameter of a call."""

    name: str
    kind: str
    required: bool


class Signature(NamedTuple):
    """The parameters that a call takes, the receiver (``self``, ``cls``) left out."""

    parameters: tuple[Parameter, ...]
    any_positional: bool
    any_keyword: bool
    module: str
    line: int

    def describe(self) -> str:
        """The parameters as a reader writes them: required ones bare, others with ``=…``; a long tail is counted."""
        optional = [one for one in self.parameters if not one.required]
        if len(optional) > MAX_SHOWN:
            needed = [one.name for one in self.parameters if one.required]
            return "(" + ", ".join([*needed, f"{len(optional)} optional"]) + ")"
        parts: list[str] = []
        keyword_only = False
        for one in self.parameters:
            if one.kind == KEYWORD_ONLY and not keyword_only:
                keyword_only = True
                if not self.any_positional:
                    parts.append("*")
            parts.append(one.name if one.required else one.name + "=…")
        if self.any_positional:
            parts.append("*args")
        if self.any_keyword:
            parts.append("**kwargs")
        return "(" + ", ".join(parts) + ")"


class Binding(NamedTuple):
    """How a call meets a signature: the expression given for each parameter, and what does not fit."""

    given: dict[str, ast.expr]
    problems: tuple[str, ...]
    open_ended: bool  # the call has *args or **kwargs that cannot be read


def of_function(node: FunctionDef, module: str, drop_first: bool) -> Signature:
    """The signature of a ``def``; ``drop_first`` leaves the receiver out."""
    arguments = node.args
    ordinary = [*arguments.posonlyargs, *arguments.args]
    first_default = len(ordinary) - len(arguments.defaults)
    parameters = [
        Parameter(
            one.arg,
            POSITIONAL_ONLY if index < len(arguments.posonlyargs) else ORDINARY,
            index < first_default,
        )
        for index, one in enumerate(ordinary)
    ]
    if drop_first and parameters:
        parameters = parameters[1:]
    parameters += [
        Parameter(one.arg, KEYWORD_ONLY, default is None)
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults)
    ]
    return Signature(tuple(parameters), arguments.vararg is not None, arguments.kwarg is not None, module, node.lineno)


def takes_receiver(node: FunctionDef) -> bool:
    """False for a static method."""
    return not any(last_name(one) == "staticmethod" for one in node.decorator_list)


def is_property(node: ast.AST) -> bool:
    """True for a method that is read, not called."""
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(
        last_name(one) in ("property", "cached_property") for one in node.decorator_list
    )


def signatures(tree: SourceTree, symbol: Symbol, bound: bool = False) -> list[Signature]:
    """Every form in which ``symbol`` may be called (one per definition); empty when it cannot be known.

    ``bound`` says that a method is called on an instance or a class, so that its receiver is not among the arguments.
    """
    if symbol.kind == "function":
        return [
            of_function(one, symbol.module, bound and takes_receiver(one))
            for one in symbol.candidates
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and not is_property(one)
        ]
    if symbol.kind == "class":
        found = of_class(tree, symbol)
        return [found] if found is not None else []
    return []


def of_class(tree: SourceTree, symbol: Symbol) -> Signature | None:
    """What constructing a class takes, or None when a base that decides it is out of sight."""
    lineage, complete = tree.lineage(symbol)
    if any(last_name(base) in ENUM_BASES for one in lineage for base in one.class_node.bases):
        return None
    for index, one in enumerate(lineage):
        if index and not complete:
            return None
        own = _method(one.class_node, "__init__") or _method(one.class_node, "__new__")
        if own is not None:
            return of_function(own, one.module, drop_first=True)
        style = data_style(tree, one)
        if style:
            return _of_fields(tree, one, style)
    if not complete:
        return None
    return Signature((), False, False, symbol.module, symbol.class_node.lineno)


ENUM_BASES = ("Enum", "IntEnum", "IntFlag", "Flag", "StrEnum")


def _method(node: ast.ClassDef, name: str) -> FunctionDef | None:
    found = [
        one
        for one in runtime_statements(node.body)
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.name == name
    ]
    return found[-1] if found else None


def data_style(tree: SourceTree, symbol: Symbol) -> str:
    """How a class gets an ``__init__`` from its fields: "dataclass", "struct", "model", or "" for not at all."""
    node = symbol.class_node
    for decorator in node.decorator_list:
        if last_name(decorator) == "dataclass":
            return "dataclass"
        names = dotted_names(decorator.func if isinstance(decorator, ast.Call) else decorator)
        found = tree.resolve_in(symbol.module, names) if names else None
        if found is not None and any(
            last_name(one) == "dataclass_transform" for one in getattr(found.node, "decorator_list", [])
        ):
            return "dataclass"
    bases = [last_name(base) for base in node.bases]
    if "Struct" in bases or "NamedTuple" in bases:
        return "struct"
    if "BaseModel" in bases:
        return "model"
    for base in node.bases:
        found = tree.base_class(symbol.module, base)
        if found is not None and found.kind == "class" and data_style(tree, found) in ("struct", "model"):
            return data_style(tree, found)
    return ""


def _of_fields(tree: SourceTree, symbol: Symbol, style: str) -> Signature:
    lineage, complete = tree.lineage(symbol)
    fields: dict[str, Parameter] = {}
    for one in reversed(lineage):
        if data_style(tree, one):
            for field in _fields(one.class_node, style):
                # An overridden field keeps its first place, as in dataclasses.
                fields[field.name] = field
    ordered = [one for one in fields.values() if one.kind != KEYWORD_ONLY]
    ordered += [one for one in fields.values() if one.kind == KEYWORD_ONLY]
    # A pydantic model ignores keywords it does not know, unless told otherwise.
    return Signature(tuple(ordered), False, style == "model" or not complete, symbol.module, symbol.class_node.lineno)


def _fields(node: ast.ClassDef, style: str) -> list[Parameter]:
    kind = KEYWORD_ONLY if style == "model" or _keyword_only(node) else ORDINARY
    found: list[Parameter] = []
    for statement in runtime_statements(node.body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        annotation = _annotation_name(statement.annotation)
        if annotation == "KW_ONLY":
            kind = KEYWORD_ONLY
        elif annotation != "ClassVar":
            required, init, keyword_only = _default(statement.value)
            if init:
                found.append(Parameter(statement.target.id, KEYWORD_ONLY if keyword_only else kind, required))
    return found


def _keyword_only(node: ast.ClassDef) -> bool:
    keywords = list(node.keywords)
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            keywords += decorator.keywords
    return any(one.arg == "kw_only" and _is_literal(one.value, True) for one in keywords)


def _annotation_name(annotation: ast.expr) -> str:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.split("[")[0].split(".")[-1].strip()
    return last_name(annotation)


def _default(value: ast.expr | None) -> tuple[bool, bool, bool]:
    """(required, part of ``__init__``, keyword only) of a field from what stands after its ``=``."""
    if value is None:
        return True, True, False
    if not (isinstance(value, ast.Call) and last_name(value) in FIELD_FUNCTIONS):
        return False, True, False
    given = {one.arg: one.value for one in value.keywords}
    if _is_literal(given.get("init"), False):
        return False, False, False
    first = value.args[0] if value.args else given.get("default")
    required = first is None or _is_literal(first, Ellipsis)
    if "default_factory" in given or None in given:
        required = False
    return required, True, _is_literal(given.get("kw_only"), True)


def _is_literal(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def bind(signature: Signature, call: ast.Call) -> Binding:
    """Match the arguments of a call with a signature, as the interpreter would."""
    problems: list[str] = []
    given: dict[str, ast.expr] = {}
    starred = any(isinstance(one, ast.Starred) for one in call.args)
    plain = [one for one in call.args if not isinstance(one, ast.Starred)]
    places = [one for one in signature.parameters if one.kind != KEYWORD_ONLY]
    if len(plain) > len(places) and not signature.any_positional:
        problems.append(
            f"takes at most {len(places)} positional argument{'' if len(places) == 1 else 's'}, {len(plain)} are given"
        )
    for place, value in zip(places, plain):
        given[place.name] = value
    named = {one.name for one in signature.parameters if one.kind != POSITIONAL_ONLY}
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        if keyword.arg not in named and not signature.any_keyword:
            problems.append(f"has no parameter {keyword.arg}")
            continue
        if keyword.arg in given:
            problems.append(f"gets {keyword.arg} twice")
        given[keyword.arg] = keyword.value
    open_ended = starred or any(one.arg is None for one in call.keywords)
    if not open_ended:
        missing = [one.name for one in signature.parameters if one.required and one.name not in given]
        if missing:
            problems.append("needs {}, which the call does not give".format(", ".join(missing)))
    return Binding(given, tuple(problems), open_ended)

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
        optional = [parameter for parameter in self.parameters if not parameter.required]
        if len(optional) > MAX_SHOWN:
            needed = [parameter.name for parameter in self.parameters if parameter.required]
            return "(" + ", ".join([*needed, f"{len(optional)} optional"]) + ")"
        parts: list[str] = []
        keyword_only = False
        for parameter in self.parameters:
            if parameter.kind == KEYWORD_ONLY and not keyword_only:
                keyword_only = True
                if not self.any_positional:
                    parts.append("*")
            parts.append(parameter.name if parameter.required else parameter.name + "=…")
        if self.any_positional:
            parts.append("*args")
        if self.any_keyword:
            parts.append("**kwargs")
        return "(" + ", ".join(parts) + ")"


class Binding(NamedTuple):
    """How a call meets a signature: the expression given for each parameter, and what does not fit."""

    arguments: dict[str, ast.expr]
    problems: tuple[str, ...]
    open_ended: bool  # the call has *args or **kwargs that cannot be read


def of_function(node: FunctionDef, module: str, drop_first: bool) -> Signature:
    """The signature of a ``def``; ``drop_first`` leaves the receiver out."""
    arguments = node.args
    ordinary = [*arguments.posonlyargs, *arguments.args]
    first_default = len(ordinary) - len(arguments.defaults)
    parameters = [
        Parameter(
            argument.arg,
            POSITIONAL_ONLY if index < len(arguments.posonlyargs) else ORDINARY,
            index < first_default,
        )
        for index, argument in enumerate(ordinary)
    ]
    if drop_first and parameters:
        parameters = parameters[1:]
    parameters += [
        Parameter(argument.arg, KEYWORD_ONLY, default is None)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults)
    ]
    return Signature(tuple(parameters), arguments.vararg is not None, arguments.kwarg is not None, module, node.lineno)


def takes_receiver(node: FunctionDef) -> bool:
    """False for a static method."""
    return not any(last_name(decorator) == "staticmethod" for decorator in node.decorator_list)


def is_property(node: ast.AST) -> bool:
    """True for a method that is read, not called."""
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(
        last_name(decorator) in ("property", "cached_property") for decorator in node.decorator_list
    )


def signatures(tree: SourceTree, symbol: Symbol, bound: bool = False) -> list[Signature]:
    """Every form in which ``symbol`` may be called (one per definition); empty when the source does not say.

    ``bound`` says that a method is called on an instance or a class, so that its receiver is not among the arguments.
    """
    if symbol.kind == "function":
        return [
            of_function(definition, symbol.module, bound and takes_receiver(definition))
            for definition in symbol.candidates
            if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)) and not is_property(definition)
        ]
    if symbol.kind == "class":
        found = of_class(tree, symbol)
        return [found] if found is not None else []
    return []


def of_class(tree: SourceTree, symbol: Symbol) -> Signature | None:
    """What constructing a class takes, or None when the source of a base that decides it is not here."""
    lineage, complete = tree.lineage(symbol)
    if any(last_name(base) in ENUM_BASES for ancestor in lineage for base in ancestor.class_node.bases):
        return None
    for index, ancestor in enumerate(lineage):
        if index and not complete:
            return None
        own = _method(ancestor.class_node, "__init__") or _method(ancestor.class_node, "__new__")
        if own is not None:
            return of_function(own, ancestor.module, drop_first=True)
        style = data_style(tree, ancestor)
        if style:
            return _of_fields(tree, ancestor, style)
    if not complete:
        return None
    return Signature((), False, False, symbol.module, symbol.class_node.lineno)


ENUM_BASES = ("Enum", "IntEnum", "IntFlag", "Flag", "StrEnum")


def _method(node: ast.ClassDef, name: str) -> FunctionDef | None:
    found = [
        statement
        for statement in runtime_statements(node.body)
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name == name
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
            last_name(outer) == "dataclass_transform" for outer in getattr(found.node, "decorator_list", [])
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
    for ancestor in reversed(lineage):
        if data_style(tree, ancestor):
            for field in _fields(ancestor.class_node, style):
                # An overridden field keeps its first place, as in dataclasses.
                fields[field.name] = field
    ordered = [field for field in fields.values() if field.kind != KEYWORD_ONLY]
    ordered += [field for field in fields.values() if field.kind == KEYWORD_ONLY]
    # A pydantic model ignores keywords it does not know, unless its configuration says otherwise.
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
    return any(keyword.arg == "kw_only" and _is_literal(keyword.value, True) for keyword in keywords)


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
    options = {keyword.arg: keyword.value for keyword in value.keywords}
    if _is_literal(options.get("init"), False):
        return False, False, False
    first = value.args[0] if value.args else options.get("default")
    required = first is None or _is_literal(first, Ellipsis)
    if "default_factory" in options or None in options:
        required = False
    return required, True, _is_literal(options.get("kw_only"), True)


def _is_literal(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def bind(signature: Signature, call: ast.Call) -> Binding:
    """Match the arguments of a call with a signature, as the interpreter would."""
    problems: list[str] = []
    arguments: dict[str, ast.expr] = {}
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    plain = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
    places = [parameter for parameter in signature.parameters if parameter.kind != KEYWORD_ONLY]
    if len(plain) > len(places) and not signature.any_positional:
        problems.append(
            f"takes at most {len(places)} positional argument{'' if len(places) == 1 else 's'}, {len(plain)} are given"
        )
    for place, value in zip(places, plain):
        arguments[place.name] = value
    named = {parameter.name for parameter in signature.parameters if parameter.kind != POSITIONAL_ONLY}
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        if keyword.arg not in named and not signature.any_keyword:
            problems.append(f"has no parameter {keyword.arg}")
            continue
        if keyword.arg in arguments:
            problems.append(f"gets {keyword.arg} twice")
        arguments[keyword.arg] = keyword.value
    open_ended = starred or any(keyword.arg is None for keyword in call.keywords)
    if not open_ended:
        required = [parameter.name for parameter in signature.parameters if parameter.required]
        missing = [name for name in required if name not in arguments]
        if missing:
            problems.append("needs {}, which the call does not give".format(", ".join(missing)))
    return Binding(arguments, tuple(problems), open_ended)

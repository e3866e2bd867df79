"""What the names in one Python file stand for: imports, classes of other modules, and instances made of them.

The answer is None wherever the source leaves a doubt; what is None is not checked.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Iterator, NamedTuple, Union

from ansible.module_utils.aerie.contracts.signatures import is_property
from ansible.module_utils.aerie.contracts.source_tree import (
    SourceTree,
    Symbol,
)
from ansible.module_utils.aerie.contracts.syntax_trees import (
    absolute_module,
    assignments,
    dotted_names,
    last_name,
)

if TYPE_CHECKING:
    from ansible.module_utils.aerie.contracts.parsed_module import Module

FunctionNode = Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda]
MAX_DEPTH = 24


class Referent(NamedTuple):
    """What an expression stands for: ``symbol`` itself, or (``instance``) an object of the class ``symbol``."""

    symbol: Symbol
    instance: bool = False
    bound: bool = False  # a method taken from an object or class: its receiver is bound already
    exact: bool = True  # False: declared as this class, may be one of its subclasses


class Scope:
    """The module, or one function in it, with what it binds."""

    def __init__(self, node: ast.AST, parent: Scope | None, owner: ast.ClassDef | None) -> None:
        self.node = node
        self.parent = parent
        self.owner = owner  # the class that a method stands in
        self.names: dict[str, list[ast.AST | None]] = {}

    def bind(self, name: str, value: ast.AST | None) -> None:
        """Note that the scope binds a name to a value; None: to something not followed."""
        self.names.setdefault(name, []).append(value)


class _Annotation(NamedTuple):
    """Marks that a name is declared with a type; wraps the annotation."""

    node: ast.expr


class Reader:
    """Finds what an expression in ``module`` stands for. One reader per file."""

    def __init__(self, tree: SourceTree, module: Module) -> None:
        self.tree = tree
        self.module = module
        self.top = Scope(module.tree, None, None)
        self.calls: list[tuple[ast.Call, Scope]] = []
        self.attributes: list[tuple[ast.Attribute, Scope]] = []
        self.imports: list[tuple[str, str, int]] = []  # module, name ("" for the module), line
        self.guarded: set[str] = set()  # attribute names the file asks for with hasattr or getattr
        self.narrowed: set[str] = set()  # class names the file asks for with isinstance
        self.strings: list[tuple[str, int]] = []
        self._self_values: dict[tuple[str, str], list[tuple[ast.AST, Scope]]] = {}
        self._declared: dict[int, _Annotation] = {}
        self._busy: set[int] = set()
        for statement in module.tree.body:
            self._visit(statement, self.top, None)

    # Collecting

    def _visit(self, node: ast.AST, scope: Scope, owner: ast.ClassDef | None) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            self._function(node, scope, owner)
            return
        if isinstance(node, ast.ClassDef):
            scope.bind(node.name, node)
            for child in ast.iter_child_nodes(node):
                self._visit(child, scope, node)
            return
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node, scope)
        elif isinstance(node, ast.Call):
            self.calls.append((node, scope))
            self._guard(node)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            self.attributes.append((node, scope))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.strings.append((node.value, node.lineno))
        self._bindings(node, scope)
        for child in ast.iter_child_nodes(node):
            self._visit(child, scope, owner)

    def _function(self, node: FunctionNode, scope: Scope, owner: ast.ClassDef | None) -> None:
        inner = Scope(node, scope, owner or scope.owner)
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for index, argument in enumerate(every):
            is_receiver = owner is not None and index == 0 and argument.arg in ("self", "cls")
            inner.bind(argument.arg, argument if is_receiver else self._marked(argument.annotation))
        for extra in (arguments.vararg, arguments.kwarg):
            if extra is not None:
                inner.bind(extra.arg, None)
        if not isinstance(node, ast.Lambda):
            if owner is None:
                scope.bind(node.name, node)
            for decorator in node.decorator_list:
                self._visit(decorator, scope, None)
        for default in [*arguments.defaults, *[value for value in arguments.kw_defaults if value is not None]]:
            self._visit(default, scope, None)
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        for child in body:
            self._visit(child, inner, None)

    def _marked(self, annotation: ast.expr | None) -> ast.AST | None:
        if annotation is not None:
            self._declared[id(annotation)] = _Annotation(annotation)
        return annotation

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                self.imports.append((alias.name, "", node.lineno))
            elif alias.name != "*":
                source = absolute_module(self.module.name, self.module.is_package, node)
                self.imports.append((source, alias.name, node.lineno))
            scope.bind(alias.asname or alias.name.split(".")[0], node)

    def _guard(self, node: ast.Call) -> None:
        if last_name(node) == "isinstance" and len(node.args) > 1:
            self.narrowed.update(last_name(part) for part in ast.walk(node.args[1]))
        if last_name(node) in ("hasattr", "getattr") and len(node.args) > 1:
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                self.guarded.add(name.value)

    def _bindings(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.stmt):
            for assigned, value in assignments(node):
                held: ast.expr | None = value
                if isinstance(node, ast.AnnAssign):
                    held = node.annotation
                    self._marked(node.annotation)
                elif isinstance(node, ast.Assign) and any(isinstance(target, ast.Tuple) for target in node.targets):
                    held = None
                self._assign(assigned, held, scope)
        if isinstance(node, ast.NamedExpr):
            self._assign(node.target, node.value, scope)
        for target in _other_targets(node):
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    scope.bind(name.id, None)

    def _assign(self, target: ast.expr, value: ast.AST | None, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.bind(target.id, value)
        elif isinstance(target, ast.Attribute) and dotted_names(target)[:1] == ["self"] and scope.owner:
            if len(dotted_names(target)) == 2:
                self._self_values.setdefault((scope.owner.name, target.attr), []).append(
                    (value if value is not None else target, scope)
                )
        elif isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                self._assign(element, None, scope)

    # Answering

    def referent(self, node: ast.AST, scope: Scope, depth: int = 0) -> Referent | None:
        """What ``node`` stands for in ``scope``, or None when that is not certain."""
        if depth > MAX_DEPTH or id(node) in self._busy:
            return None
        self._busy.add(id(node))
        try:
            if id(node) in self._declared:
                return self._annotated(node, self.module.name)
            if isinstance(node, ast.Name):
                return self._name(node.id, scope, depth)
            if isinstance(node, ast.Attribute):
                return self._attribute(node, scope, depth)
            if isinstance(node, ast.Call):
                return self._result(self.referent(node.func, scope, depth + 1))
            return None
        finally:
            self._busy.discard(id(node))

    def _name(self, name: str, scope: Scope, depth: int) -> Referent | None:
        place: Scope | None = scope
        while place is not None and name not in place.names:
            place = place.parent
        if place is None:
            return None
        found = [self._bound(name, value, place, depth) for value in place.names[name]]
        first = found[0]
        return first if _all_the_same(found) else None

    def _bound(self, name: str, value: ast.AST | None, scope: Scope, depth: int) -> Referent | None:
        if value is None:
            return None
        if isinstance(value, ast.arg):
            own = self.tree.lookup(self.module.name, scope.owner.name) if scope.owner else None
            return Referent(own, instance=name == "self") if own is not None and own.kind == "class" else None
        if isinstance(value, (ast.Import, ast.ImportFrom)):
            return self._imported(name, value)
        if isinstance(value, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            symbol = self.tree.lookup(self.module.name, name) if scope is self.top else None
            return Referent(symbol) if symbol is not None else None
        return self.referent(value, scope, depth + 1)

    def _imported(self, name: str, node: ast.Import | ast.ImportFrom) -> Referent | None:
        for alias in node.names:
            if (alias.asname or alias.name.split(".")[0]) != name:
                continue
            if isinstance(node, ast.Import):
                target = alias.name if alias.asname else name
                return Referent(Symbol("module", target, "", None)) if self.tree.exists(target) else None
            symbol = self.tree.lookup(absolute_module(self.module.name, self.module.is_package, node), alias.name)
            return Referent(symbol) if symbol is not None else None
        return None

    def _attribute(self, node: ast.Attribute, scope: Scope, depth: int) -> Referent | None:
        holder = self.referent(node.value, scope, depth + 1)
        if holder is None:
            return None
        if holder.symbol.kind == "module":
            symbol = self.tree.lookup(holder.symbol.module, node.attr)
            return Referent(symbol) if symbol is not None else None
        if holder.symbol.kind != "class":
            return None
        member = self.tree.resolve_member(holder.symbol, [node.attr])
        if member is None:
            return None
        if member.kind == "function":
            if any(is_property(definition) for definition in member.candidates):
                return self._returned(member)
            static = isinstance(member.node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not any(
                last_name(decorator) == "classmethod" for decorator in member.node.decorator_list
            )
            return Referent(member, bound=holder.instance or not static)
        if member.kind == "value":
            return self._value_of(holder.symbol, member, node.attr, depth)
        return Referent(member) if member.kind == "class" else None

    def _value_of(self, holder: Symbol, member: Symbol, name: str, depth: int) -> Referent | None:
        if isinstance(member.node, ast.AnnAssign):
            return self._annotated(member.node.annotation, member.module)
        if holder.module != self.module.name:
            return None
        values = self._self_values.get((holder.qualname, name), [])
        found = [self.referent(value, scope, depth + 1) for value, scope in values]
        return found[0] if found and _all_the_same(found) else None

    def _result(self, called: Referent | None) -> Referent | None:
        if called is None:
            return None
        if called.symbol.kind == "class" and not called.instance:
            return Referent(called.symbol, instance=True)
        return self._returned(called.symbol) if called.symbol.kind == "function" else None

    def _returned(self, function: Symbol) -> Referent | None:
        node = function.node
        # A coroutine, a generator or a context manager gives something else than it declares.
        if not isinstance(node, ast.FunctionDef):
            return None
        if any("context" in last_name(decorator) for decorator in node.decorator_list):
            return None
        if node.returns is not None:
            return self._annotated(node.returns, function.module)
        return None

    def _annotated(self, annotation: ast.AST, module: str) -> Referent | None:
        """An object of the class that an annotation names; None for unions and containers."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                return None
        names = dotted_names(annotation)
        symbol = self.tree.resolve_in(module, names) if names else None
        if symbol is None or symbol.kind != "class":
            return None
        return Referent(symbol, instance=True, exact=False)


def _all_the_same(referents: list[Referent | None]) -> bool:
    """Whether all expressions stand for the same symbol."""
    symbols = {None if referent is None else referent.symbol.dotted for referent in referents}
    return len(symbols) == 1 and None not in symbols


def _other_targets(node: ast.AST) -> Iterator[ast.AST]:
    """Targets that bind a name to something we do not follow: loops, ``with``, ``except``, comprehensions."""
    if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension, ast.AugAssign)):
        yield node.target
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            if item.optional_vars is not None:
                yield item.optional_vars
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield ast.Name(id=node.name, ctx=ast.Store())

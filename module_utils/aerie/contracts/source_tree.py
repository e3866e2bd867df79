"""Find names in installed Python source by reading it, never by importing it.

A ``SourceTree`` stands on a ``site-packages`` folder. It parses only the modules that it needs, follows
re-exports (``from x import y``, ``X = Y``, PEP 562 tables of ``"name": "module:attribute"``) to the definition, and
keeps what it has parsed.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ansible.module_utils.aerie.contracts.parsed_module import Module
from ansible.module_utils.aerie.contracts.syntax_trees import (
    Definition,
    absolute_module,
    class_members,
    dotted_names,
    is_overload,
    last_name,
)

if TYPE_CHECKING:
    from pathlib import Path

MAX_HOPS = 12


class Symbol(NamedTuple):
    """Where a dotted name ends: a definition, a module, a plain value, or something outside the tree."""

    kind: str  # "class", "function", "module", "value", "foreign", "dynamic"
    module: str
    qualname: str
    node: ast.AST | None
    candidates: tuple[Definition, ...] = ()

    @property
    def dotted(self) -> str:
        """The full name at the place of definition."""
        return f"{self.module}.{self.qualname}" if self.qualname else self.module

    @property
    def class_node(self) -> ast.ClassDef:
        """The class definition. Raises ``TypeError`` for a symbol that is none."""
        if not isinstance(self.node, ast.ClassDef):
            raise TypeError(f"{self.dotted} is not a class")
        return self.node


class SourceTree:
    """The modules below one ``site-packages`` folder, parsed on demand."""

    def __init__(self, site_packages: Path) -> None:
        self.root = site_packages
        self._modules: dict[str, Module | None] = {}
        self._paths: dict[str, tuple[Path, bool] | None] = {}
        self._members: dict[int, dict[str, list[ast.AST]]] = {}
        self._lineages: dict[str, tuple[list[Symbol], bool]] = {}

    def members(self, node: ast.ClassDef) -> dict[str, list[ast.AST]]:
        """``class_members`` of a class of this tree, worked out once."""
        if id(node) not in self._members:
            self._members[id(node)] = class_members(node)
        return self._members[id(node)]

    def path_of(self, module: str) -> tuple[Path, bool] | None:
        """The file of a module and whether it is a package, or None when there is no such source file."""
        if module not in self._paths:
            base = self.root.joinpath(*module.split("."))
            package, plain = base / "__init__.py", base.with_name(base.name + ".py")
            if package.is_file():
                self._paths[module] = (package, True)
            else:
                self._paths[module] = (plain, False) if plain.is_file() else None
        return self._paths[module]

    def is_namespace(self, module: str) -> bool:
        """True when the module is a folder without ``__init__.py``."""
        return self.root.joinpath(*module.split(".")).is_dir()

    def module(self, name: str) -> Module | None:
        """The parsed module, or None when its source is not below this folder. Raises ``SourceError``."""
        if name not in self._modules:
            found = self.path_of(name)
            self._modules[name] = Module(name, found[0], found[1]) if found else None
        return self._modules[name]

    def exists(self, module: str) -> bool:
        """True when the module can be imported from this folder as source or as a folder."""
        return self.path_of(module) is not None or self.is_namespace(module)

    def split(self, dotted: str) -> tuple[str, list[str]] | None:
        """Cut ``a.b.C.m`` into its longest existing module and the names after it."""
        parts = dotted.split(".")
        for cut in range(len(parts), 0, -1):
            module = ".".join(parts[:cut])
            if self.path_of(module) is not None:
                return module, parts[cut:]
        return None

    def resolve(self, dotted: str) -> Symbol | None:
        """What a dotted name stands for at run time, or None when nothing of that name exists."""
        cut = self.split(dotted)
        if cut is None:
            return Symbol("module", dotted, "", None) if self.is_namespace(dotted) else None
        module, names = cut
        if not names:
            return Symbol("module", module, "", None)
        return self.resolve_in(module, names)

    def resolve_in(self, module: str, names: list[str], hops: int = 0) -> Symbol | None:
        """Resolve ``names`` (attribute after attribute) from a module's top level."""
        found = self.lookup(module, names[0], hops)
        if found is None or len(names) == 1:
            return found
        if found.kind == "module":
            return self.resolve_in(found.module, names[1:], hops + 1)
        if found.kind == "class":
            return self.resolve_member(found, names[1:])
        return Symbol("dynamic", found.module, ".".join([found.qualname, *names[1:]]), None)

    def lookup(self, module_name: str, name: str, hops: int = 0) -> Symbol | None:
        """One name at a module's top level, followed through re-exports to where it is defined."""
        module = self.module(module_name)
        if module is None:
            if self.is_namespace(module_name) and self.exists(module_name + "." + name):
                return Symbol("module", module_name + "." + name, "", None)
            # The source of another distribution: out of our sight unless it is simply not there.
            return Symbol("foreign", module_name, name, None)
        if hops > MAX_HOPS:
            return Symbol("dynamic", module_name, name, None)
        if name in module.definitions:
            return definition_symbol(module_name, name, module.definitions[name])
        if name in module.exports:
            export = module.exports[name]
            if not export.name:
                return Symbol("module" if self.exists(export.module) else "foreign", export.module, "", None)
            return self.lookup(export.module, export.name, hops + 1)
        if name in module.values:
            return self._value(module, name, hops)
        return self._implicit(module, name, hops)

    def _value(self, module: Module, name: str, hops: int) -> Symbol:
        value = module.values[name]
        if isinstance(value, ast.Name) and value.id != name:
            target = self.lookup(module.name, value.id, hops + 1)
            if target is not None:
                return target
        return Symbol("value", module.name, name, value)

    def _implicit(self, module: Module, name: str, hops: int) -> Symbol | None:
        for star in module.stars:
            found = self.lookup(star, name, hops + 1)
            if found is not None and found.kind != "foreign":
                return found
        if self.exists(module.name + "." + name):
            return Symbol("module", module.name + "." + name, "", None)
        if module.has_getattr:
            target = module.lazy.get(name, "")
            if ":" in target:
                where, attribute = target.split(":", 1)
                level = len(where) - len(where.lstrip("."))
                source = ast.ImportFrom(module=where.lstrip(".") or None, names=[], level=level)
                return self.lookup(absolute_module(module.name, module.is_package, source), attribute, hops + 1)
            if f'"{name}"' in module.text or f"'{name}'" in module.text:
                return Symbol("dynamic", module.name, name, None)
        if any(self.module(star) is None for star in module.stars):
            return Symbol("dynamic", module.name, name, None)
        return None

    def resolve_member(self, owner: Symbol, names: list[str]) -> Symbol | None:
        """Resolve ``names`` from a class, its bases included. ``dynamic`` when a base is out of sight."""
        bases, complete = self.lineage(owner)
        for base in bases:
            members = self.members(base.class_node)
            if names[0] in members:
                found = members[names[0]]
                qualname = base.qualname + "." + names[0]
                if isinstance(found[0], (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    defined = [definition for definition in found if isinstance(definition, type(found[0]))]
                    symbol = definition_symbol(base.module, qualname, defined)
                else:
                    symbol = Symbol("value", base.module, qualname, found[0])
                if len(names) == 1:
                    return symbol
                if symbol.kind == "class":
                    return self.resolve_member(symbol, names[1:])
                return Symbol("dynamic", base.module, qualname, None)
        if not complete:
            return Symbol("dynamic", owner.module, ".".join([owner.qualname, *names]), None)
        return None

    def lineage(self, owner: Symbol) -> tuple[list[Symbol], bool]:
        """The class and its bases, nearest first, and whether every base could be read.

        Depth first without duplicates: enough to find a member, since no two vLLM bases disagree on one.
        """
        if owner.dotted not in self._lineages:
            self._lineages[owner.dotted] = self._lineage(owner)
        return self._lineages[owner.dotted]

    def _lineage(self, owner: Symbol) -> tuple[list[Symbol], bool]:
        order: list[Symbol] = []
        complete = True
        queue = [owner]
        while queue:
            current = queue.pop(0)
            if any(known.dotted == current.dotted for known in order):
                continue
            order.append(current)
            ahead: list[Symbol] = []
            for base in current.class_node.bases:
                found = self.base_class(current.module, base)
                if found is not None and found.kind == "class":
                    ahead.append(found)
                elif last_name(base) not in HARMLESS_BASES:
                    complete = False
            queue = ahead + queue
        return order, complete

    def base_class(self, module: str, base: ast.expr) -> Symbol | None:
        """The class that a base expression names, seen from a module."""
        if isinstance(base, ast.Subscript):
            base = base.value
        names = dotted_names(base)
        return self.resolve_in(module, names) if names else None


# Bases from outside that add no public method or field a caller could mistake for one that is missing.
HARMLESS_BASES = frozenset(
    [
        "object",
        "ABC",
        "Generic",
        "Protocol",
        "Enum",
        "IntEnum",
        "IntFlag",
        "StrEnum",
        "Flag",
        "NamedTuple",
        "Struct",
        "BaseModel",
        "Exception",
    ]
)


def definition_symbol(module: str, qualname: str, found: list[Definition]) -> Symbol:
    """The symbol of a definition that may be written more than once (overloads, branches)."""
    real = [definition for definition in found if not is_overload(definition)] or found
    kind = "class" if isinstance(real[-1], ast.ClassDef) else "function"
    return Symbol(kind, module, qualname, real[-1], tuple(real))

"""The automatic contract: what a file imports from vLLM must exist, and its calls must fit vLLM's signatures."""

from __future__ import annotations

import ast
import difflib
import re
from typing import TYPE_CHECKING, NamedTuple, Sequence

from ansible.module_utils.aerie.contracts.name_resolution import Reader, Referent, Scope
from ansible.module_utils.aerie.contracts.signatures import Binding, Signature, bind, data_style, signatures
from ansible.module_utils.aerie.shared.checks import Check

if TYPE_CHECKING:
    from ansible.module_utils.aerie.contracts.source_tree import SourceTree, Symbol

REMEDY = (
    "apply the patch series (tag patch); where it is applied, the installed vLLM is not the one that the stack "
    "names (tag provision), or the series needs a patch for it"
)


class CallSite(NamedTuple):
    """A call of something outside the file, matched with the signature that fits it best."""

    symbol: Symbol
    call: ast.Call
    scope: Scope
    signature: Signature | None
    binding: Binding | None


def finding(name: str, holds: bool, found: str, wanted: str, remedy: str, file: str, line: int) -> Check:
    """One thing that was checked about a file."""
    return Check(name, "pass" if holds else "fail", found, wanted, remedy, file, line)


def module_name(file: str) -> str:
    """``pkg/sub/x.py`` as ``pkg.sub.x``."""
    parts = file[: -len(".py")].split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def relative_file(tree: SourceTree, symbol: Symbol) -> str:
    """The file of a symbol's definition, relative to site-packages, with its line."""
    path = tree.path_of(symbol.module)
    name = str(path[0].relative_to(tree.root)) if path else symbol.module
    return f"{name}:{getattr(symbol.node, 'lineno', 1)}"


class FileReading:
    """One file of the environment, read once, for the automatic check and for declared contracts."""

    def __init__(self, tree: SourceTree, file: str) -> None:
        module = tree.module(module_name(file))
        if module is None:
            raise FileNotFoundError(file)
        self.tree = tree
        self.file = file
        self.module = module
        self.reader = Reader(tree, module)
        self._sites: list[CallSite] | None = None

    def sites(self) -> list[CallSite]:
        """Every call in the file whose callee is certain, in the order of the lines."""
        if self._sites is None:
            found = [self._site(call, scope) for call, scope in self.reader.calls]
            self._sites = sorted((site for site in found if site), key=lambda site: site.call.lineno)
        return self._sites

    def _site(self, call: ast.Call, scope: Scope) -> CallSite | None:
        callee = self.reader.referent(call.func, scope)
        if callee is None or callee.instance or callee.symbol.kind not in ("class", "function"):
            return None
        forms = signatures(self.tree, callee.symbol, callee.bound)
        if not forms:
            return CallSite(callee.symbol, call, scope, None, None)
        bindings = [(form, bind(form, call)) for form in forms]
        signature, binding = min(bindings, key=lambda pair: len(pair[1].problems))
        return CallSite(callee.symbol, call, scope, signature, binding)

    def constant(self, node: ast.expr) -> tuple[bool, object]:
        """(True, value) when an expression is a literal or a module constant that is one."""
        if isinstance(node, ast.Name) and node.id in self.module.values:
            value = self.module.values[node.id]
            node = value if isinstance(value, ast.expr) else node
        try:
            return True, ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            return False, None


def call_text(call: ast.Call) -> str:
    """A call as a reader recognises it: callee and the names of its arguments."""
    callee = call.func
    name = callee.attr if isinstance(callee, ast.Attribute) else getattr(callee, "id", "…")
    parts = ["…" if not isinstance(argument, ast.Starred) else "*…" for argument in call.args]
    parts += [keyword.arg + "=…" if keyword.arg else "**…" for keyword in call.keywords]
    return "{}({})".format(name, ", ".join(parts))


def automatic(reading: FileReading, providers: Sequence[str]) -> list[Check]:
    """Check every import, call and attribute of ``reading`` that belongs to one of the packages ``providers``."""
    findings = _imports(reading, providers)
    findings += _calls(reading, providers)
    findings += _attributes(reading, providers)
    findings += _named_in_strings(reading, providers)
    return sorted(findings, key=lambda check: check.line or 0)


def _provided(module: str, providers: Sequence[str]) -> bool:
    return module.split(".")[0] in providers


def _imports(reading: FileReading, providers: Sequence[str]) -> list[Check]:
    findings = []
    tree = reading.tree
    for module, name, line in reading.reader.imports:
        if not _provided(module, providers):
            continue
        label = f"{module} has {name}" if name else f"module {module} exists"
        if not tree.exists(module):
            missing = f"no module {module}"
            wanted = "a module of that name in the installed {}".format(module.split(".")[0])
            findings.append(finding(label, False, missing, wanted, REMEDY, reading.file, line))
        elif name and tree.lookup(module, name) is None:
            found = f"{module} has no name {name}{_close(_names_of(tree, module), name)}"
            wanted = f"`from {module} import {name}` to work"
            findings.append(finding(label, False, found, wanted, REMEDY, reading.file, line))
        else:
            findings.append(finding(label, True, "present", "present", "", reading.file, line))
    return findings


def _calls(reading: FileReading, providers: Sequence[str]) -> list[Check]:
    findings = []
    for site in reading.sites():
        if not _provided(site.symbol.module, providers) or site.binding is None or site.signature is None:
            continue
        short = site.symbol.qualname
        label = f"call of {site.symbol.dotted}"
        # The definition's own line: for an inherited or generated __init__ that is where its parameters stand.
        where = relative_file(reading.tree, site.symbol)
        wanted = f"{short}{site.signature.describe()} as in {where}"
        ok = not site.binding.problems
        found = call_text(site.call) + ("" if ok else ": {} {}".format(short, "; ".join(site.binding.problems)))
        findings.append(finding(label, ok, found, wanted, "" if ok else REMEDY, reading.file, site.call.lineno))
    return findings


def _attributes(reading: FileReading, providers: Sequence[str]) -> list[Check]:
    findings: dict[tuple[str, str], Check] = {}
    for node, scope in reading.reader.attributes:
        if node.attr in reading.reader.guarded or node.attr.startswith("__"):
            continue
        holder = reading.reader.referent(node.value, scope)
        if holder is None or not _provided(holder.symbol.module, providers):
            continue
        if holder.symbol.module == reading.module.name:
            continue  # the file's own classes get attributes from outside
        exists = _has_member(reading.tree, holder, node.attr)
        if exists is None or (not exists and not holder.exact and not _closed(reading, holder)):
            continue
        owner = holder.symbol.dotted
        label = f"{owner} has {node.attr}"
        found = "present"
        if not exists:
            found = f"{owner} has no {node.attr}{_close(_members_of(reading.tree, holder), node.attr)}"
        remedy = "" if exists else REMEDY
        wanted = f"{node.attr} as used here"
        findings.setdefault(
            (owner, node.attr), finding(label, exists, found, wanted, remedy, reading.file, node.lineno)
        )
    return list(findings.values())


def _has_member(tree: SourceTree, holder: Referent, name: str) -> bool | None:
    """Whether an attribute exists; None when that is decided at run time."""
    symbol = holder.symbol
    if symbol.kind == "module":
        return tree.lookup(symbol.module, name) is not None
    if symbol.kind != "class":
        return None
    bases, _ = tree.lineage(symbol)
    for base in bases:
        if "__getattr__" in tree.members(base.class_node):
            return None
    found = tree.resolve_member(symbol, [name])
    if found is not None and found.kind == "dynamic":
        return None
    if found is None and (not holder.instance or name in ("name", "value")):
        # A metaclass may add to a class (``mro``), an Enum to its members.
        return None if name in ("mro", "name", "value") else False
    return found is not None


def _closed(reading: FileReading, holder: Referent) -> bool:
    """Whether an object that is only *declared* as a class cannot be of a richer subclass.

    Plain data classes are closed, unless the file itself asks with ``isinstance`` for something else.
    """
    return bool(data_style(reading.tree, holder.symbol)) and not reading.reader.narrowed


def _members_of(tree: SourceTree, holder: Referent) -> list[str]:
    if holder.symbol.kind == "module":
        return _names_of(tree, holder.symbol.module)
    names: list[str] = []
    for base in tree.lineage(holder.symbol)[0]:
        names += list(tree.members(base.class_node))
    return names


def _names_of(tree: SourceTree, module: str) -> list[str]:
    found = tree.module(module)
    return [*found.definitions, *found.exports, *found.values] if found else []


def _close(names: Sequence[str], name: str) -> str:
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return "; it has " + ", ".join(near) if near else ""


def _named_in_strings(reading: FileReading, providers: Sequence[str]) -> list[Check]:
    """Classes that are passed by name, as text (``worker_extension_cls``), must exist too."""
    packages = "|".join(re.escape(provider) for provider in providers)
    pattern = re.compile(rf"(?:{packages})(?:\.[A-Za-z_]\w*){{2,}}")
    findings = []
    for text, line in reading.reader.strings:
        if pattern.fullmatch(text):
            ok = reading.tree.resolve(text) is not None
            found = "present" if ok else "nothing of that name"
            remedy = "" if ok else REMEDY
            findings.append(finding(f"{text} exists", ok, found, "what the text names", remedy, reading.file, line))
    return findings

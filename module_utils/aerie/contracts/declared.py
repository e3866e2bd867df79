"""Contracts: what our patched files rely on in vLLM, as data beside each patch, checked without importing.

Kinds (see ``docs/contracts.md``):

- ``{call: dotted.name, in: file, passes: {keyword: any | literal | absent}}``: our call gives these arguments.
- ``{defines: dotted.name, parameters: [..], returns: regex}``: vLLM has this name, in this form.
- ``{source: dotted.name, pattern: regex, says: text, absent: bool}``: vLLM's source reads so.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Mapping

from ansible.module_utils.aerie.contracts.automatic import CallSite, FileReading, call_text, finding, relative_file
from ansible.module_utils.aerie.contracts.signatures import signatures

if TYPE_CHECKING:
    from ansible.module_utils.aerie.contracts.source_tree import SourceTree, Symbol
    from ansible.module_utils.aerie.shared.checks import Check

KINDS = {
    "call": {"call", "in", "passes"},
    "defines": {"defines", "parameters", "returns"},
    "source": {"source", "pattern", "says", "absent"},
}
REMEDY_CALL = "apply the patch series (tag patch); %s is what gives this argument"
REMEDY_VLLM = "this vLLM is not the one the series was made for: provision the stack's version, or renew %s"


class ContractError(ValueError):
    """A contract that is not written as one of the kinds above."""


def kind_of(contract: Mapping[str, Any]) -> str:
    """The kind of a contract. Raises ``ContractError`` for unknown kinds and unknown keys."""
    kinds = [kind for kind in KINDS if kind in contract]
    if len(kinds) != 1:
        raise ContractError("a contract has exactly one of {}: {!r}".format(", ".join(KINDS), dict(contract)))
    unknown = set(contract) - KINDS[kinds[0]]
    if unknown:
        raise ContractError("contract {} has unknown keys {}".format(kinds[0], ", ".join(sorted(map(str, unknown)))))
    needed = {"call": ("in", "passes"), "defines": (), "source": ("pattern", "says")}[kinds[0]]
    missing = [key for key in needed if key not in contract]
    if missing:
        raise ContractError("contract {} lacks {}".format(contract[kinds[0]], ", ".join(missing)))
    return kinds[0]


class Evaluator:
    """Evaluates contracts on one environment; files and modules are read once."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self._readings: dict[str, FileReading] = {}

    def reading(self, file: str) -> FileReading:
        """One of our files, read. Raises ``FileNotFoundError`` and ``SourceError``."""
        if file not in self._readings:
            self._readings[file] = FileReading(self.tree, file)
        return self._readings[file]

    def evaluate(self, contract: Mapping[str, Any], patch: str) -> list[Check]:
        """Check one contract of ``patch``; one finding for each thing it demands."""
        kind = kind_of(contract)
        if kind == "call":
            return self._call(contract, patch)
        if kind == "defines":
            return [self._defines(contract, patch)]
        return [self._source(contract, patch)]

    # What our file passes

    def _call(self, contract: Mapping[str, Any], patch: str) -> list[Check]:
        dotted, file = str(contract["call"]), str(contract["in"])
        remedy = REMEDY_CALL % patch
        label = f"{patch}: call of {dotted}"
        target = self.tree.resolve(dotted)
        if target is None:
            return [self._missing(label, dotted, patch)]
        try:
            reading = self.reading(file)
        except FileNotFoundError:
            return [finding(label, False, "no file " + file, "a file that makes this call", remedy, file, 1)]
        sites = [site for site in reading.sites() if site.symbol.dotted == target.dotted]
        if not sites:
            return [finding(label, False, "no call of it in the file", "at least one call", remedy, file, 1)]
        return [
            self._passes(reading, site, str(keyword), wanted, label, remedy)
            for site in sites
            for keyword, wanted in sorted(contract["passes"].items())
        ]

    def _passes(
        self, reading: FileReading, site: CallSite, keyword: str, wanted: Any, label: str, remedy: str
    ) -> Check:
        argument = _argument(site, keyword)
        name = f"{label} gives {keyword}"
        says = "{}={}".format(keyword, "…" if wanted == "any" else repr(wanted))
        if wanted == "absent":
            says = "no argument " + keyword
        ok, found = _judge(reading, argument, wanted)
        found = f"{call_text(site.call)}: {found}"
        return finding(name, ok, found, says, "" if ok else remedy, reading.file, site.call.lineno)

    # What vLLM has

    def _defines(self, contract: Mapping[str, Any], patch: str) -> Check:
        dotted = str(contract["defines"])
        label = f"{patch}: {dotted} is defined"
        symbol = self.tree.resolve(dotted)
        if symbol is None:
            return self._missing(label, dotted, patch)
        file, line = self._place(symbol)
        problems, found = [], "present"
        wanted = [str(name) for name in contract.get("parameters", [])]
        if wanted:
            forms = signatures(self.tree, symbol, bound="." in symbol.qualname)
            names = {parameter.name for form in forms for parameter in form.parameters}
            found = "{}{}".format(symbol.qualname, forms[-1].describe() if forms else " cannot be called")
            problems += ["no parameter " + name for name in wanted if name not in names]
        if "returns" in contract:
            returned = self._return_text(symbol)
            found += " -> " + returned
            if not re.search(str(contract["returns"]), returned):
                problems.append("another return form")
        demand = "present"
        if wanted:
            demand = "parameters " + ", ".join(wanted)
        if "returns" in contract:
            demand += ", returning " + str(contract["returns"])
        found += ": " + ", ".join(problems) if problems else ""
        remedy = REMEDY_VLLM % patch if problems else ""
        return finding(label, not problems, found, demand, remedy, file, line)

    def _source(self, contract: Mapping[str, Any], patch: str) -> Check:
        dotted, pattern = str(contract["source"]), str(contract["pattern"])
        label = "{}: {}".format(patch, contract["says"])
        symbol = self.tree.resolve(dotted)
        if symbol is None:
            return self._missing(label, dotted, patch)
        text, first = self._text(symbol)
        file, line = self._place(symbol)
        match = re.search(pattern, text, re.MULTILINE)
        absent = bool(contract.get("absent", False))
        ok = (match is None) == absent
        if match:
            line = first + text.count("\n", 0, match.start())
        found = f"line {line} reads so" if match else f"nothing in {dotted} reads so"
        wanted = "{}/{}/ in {}".format("no " if absent else "", pattern, dotted)
        return finding(label, ok, found, wanted, "" if ok else REMEDY_VLLM % patch, file, line)

    def _missing(self, label: str, dotted: str, patch: str) -> Check:
        cut = self.tree.split(dotted)
        file = str(self.tree.path_of(cut[0])[0].relative_to(self.tree.root)) if cut else dotted.split(".")[0]  # type: ignore[index]
        return finding(label, False, "nothing of that name", dotted, REMEDY_VLLM % patch, file, 1)

    def _place(self, symbol: Symbol) -> tuple[str, int]:
        file, line = relative_file(self.tree, symbol).rsplit(":", 1)
        return file, int(line)

    def _text(self, symbol: Symbol) -> tuple[str, int]:
        found = self.tree.path_of(symbol.module)
        if symbol.kind == "module" and found is not None:
            # Parsing a module of 6,000 lines only to search its text would cost more than all the rest.
            return found[0].read_text(encoding="utf-8"), 1
        module = self.tree.module(symbol.module)
        if module is None:
            return "", 1
        if symbol.node is None:
            return module.text, 1
        node = symbol.node
        start = getattr(node, "lineno", 1)
        decorators = getattr(node, "decorator_list", [])
        start = min([start, *[decorator.lineno for decorator in decorators]])
        end = getattr(node, "end_lineno", None) or start
        return "\n".join(module.text.split("\n")[start - 1 : end]), start

    def _return_text(self, symbol: Symbol) -> str:
        module = self.tree.module(symbol.module)
        node = symbol.node
        if module is None or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.returns is None:
            return "(not annotated)"
        return " ".join((ast.get_source_segment(module.text, node.returns) or "").split())


def _argument(site: CallSite, keyword: str) -> ast.expr | None:
    if site.binding is not None and keyword in site.binding.arguments:
        return site.binding.arguments[keyword]
    for argument in site.call.keywords:
        if argument.arg == keyword:
            return argument.value
    return None


def _judge(reading: FileReading, argument: ast.expr | None, wanted: Any) -> tuple[bool, str]:
    """Whether an argument is what a contract wants, and what it is."""
    if argument is None:
        return wanted == "absent", "not given"
    literal, value = reading.constant(argument)
    text = repr(value) if literal else ast.get_source_segment(reading.module.text, argument) or "an expression"
    if wanted == "any":
        return True, text
    if wanted == "absent" or not literal:
        return False, text
    # True == 1 in Python, but not in what a call means.
    return type(value) is type(wanted) and value == wanted, text

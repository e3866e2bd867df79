"""The schema of ``series.yml``, and the series as the engine uses it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible.module_utils.aerie.distributions.installed import sha256
from ansible.module_utils.aerie.distributions.names import normalize
from ansible.module_utils.aerie.patching import diff
from ansible.module_utils.aerie.shared.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEADER_FIELDS = ("Description", "Fault", "Origin", "Forwarded", "License")
_SERIES_KEYS = {"distribution", "version", "files", "modules", "patches"}
_PATCH_REQUIRED = {"id", "title", "faults", "breaks", "since", "upstream", "drop_when", "test", "probes"}
_PATCH_KEYS = _PATCH_REQUIRED | {"keep_when_obsolete"}
_CONTRACT_KINDS = ("call", "defines", "source")


class SeriesRefusal(Refusal):
    """``series.yml`` or a file that it names breaks the schema; ``found`` lists every fault."""

    def __init__(self, found: str) -> None:
        remedy = "mend the series; tools/series.py lint shows all faults"
        super().__init__("series", found, "a series that keeps the schema", remedy)


@dataclass(frozen=True)
class Grep:
    """A line that must (or, with ``absent``, must not) be in a file."""

    file: str
    pattern: str
    absent: bool = False


@dataclass(frozen=True)
class SeriesPatch:
    """One patch of a series, with its catalogue entry."""

    id: str
    title: str
    faults: tuple[object, ...]
    breaks: str
    since: str
    upstream: str
    drop_when: str
    test: str
    keep_when_obsolete: str
    greps: tuple[Grep, ...]
    imports: tuple[str, ...]
    contracts: tuple[dict[str, Any], ...]
    parsed: diff.Patch

    @property
    def paths(self) -> list[str]:
        """The files that the patch edits."""
        return [edit.path for edit in self.parsed.files]


@dataclass(frozen=True)
class Module:
    """A file of ours that the series adds."""

    target: str
    content: bytes
    source: str = ""


@dataclass(frozen=True)
class Series:
    """An ordered set of patches and modules for one exact distribution version."""

    name: str
    distribution: str
    version: str
    files: dict[str, str]
    modules: tuple[Module, ...]
    patches: tuple[SeriesPatch, ...]
    digest: str = field(default="", compare=False)


class _Reader:
    """Collects every fault instead of stopping at the first."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def keys(self, where: str, value: object, required: set[str], allowed: set[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.faults.append(f"{where}: a mapping is wanted")
            return {}
        self.faults += [f"{where}: key {key!r} is missing" for key in sorted(required - set(value))]
        self.faults += [f"{where}: unknown key {key!r}" for key in sorted(str(k) for k in set(value) - allowed)]
        return value

    def text(self, where: str, value: object, verbatim: bool = False) -> str:
        if not isinstance(value, str) or not value.strip():
            self.faults.append(f"{where}: a text is wanted, found {value!r}")
            return ""
        return value if verbatim else value.strip()

    def items(self, where: str, value: object) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list):
            self.faults.append(f"{where}: a list is wanted")
            return []
        return value

    def path(self, where: str, value: object) -> str:
        text = self.text(where, value)
        try:
            return diff.safe_path(text) if text else ""
        except diff.DiffError as error:
            self.faults.append(f"{where}: {error}")
            return ""


def _probes(read: _Reader, where: str, value: object) -> tuple[tuple[Grep, ...], tuple[str, ...], tuple[Any, ...]]:
    probes = read.keys(where, value, set(), {"grep", "imports", "contracts"})
    greps = []
    for number, entry in enumerate(read.items(f"{where}.grep", probes.get("grep"))):
        at = f"{where}.grep[{number}]"
        grep = read.keys(at, entry, {"file", "pattern"}, {"file", "pattern", "absent"})
        file, pattern = (
            read.path(f"{at}.file", grep.get("file")),
            read.text(f"{at}.pattern", grep.get("pattern"), verbatim=True),
        )
        try:
            re.compile(pattern)
        except re.error as error:
            read.faults.append(f"{at}.pattern: {error}")
        if not isinstance(grep.get("absent", False), bool):
            read.faults.append(f"{at}.absent: true or false is wanted")
        greps.append(Grep(file, pattern, bool(grep.get("absent", False))))
    imports = []
    for number, entry in enumerate(read.items(f"{where}.imports", probes.get("imports"))):
        text = read.text(f"{where}.imports[{number}]", entry)
        if text and not re.fullmatch(r"[A-Za-z_][\w.]*(:[A-Za-z_][\w.]*)?", text):
            read.faults.append(f"{where}.imports[{number}]: 'module' or 'module:name' is wanted, found {text!r}")
        imports.append(text)
    contracts = read.items(f"{where}.contracts", probes.get("contracts"))
    for number, entry in enumerate(contracts):
        if not isinstance(entry, dict) or sum(kind in entry for kind in _CONTRACT_KINDS) != 1:
            kinds = ", ".join(_CONTRACT_KINDS)
            read.faults.append(f"{where}.contracts[{number}]: exactly one of {kinds} is wanted")
    if not greps and not contracts:
        read.faults.append(f"{where}: at least one grep or contract is wanted")
    return tuple(greps), tuple(imports), tuple(contracts)


def _patch(read: _Reader, where: str, value: object, texts: dict[str, bytes]) -> SeriesPatch | None:
    entry = read.keys(where, value, _PATCH_REQUIRED, _PATCH_KEYS)
    name = read.text(f"{where}.id", entry.get("id"))
    if name and not re.fullmatch(r"\d{4}-[a-z0-9]+(-[a-z0-9]+)*", name):
        read.faults.append(f"{where}.id: NNNN-slug is wanted, found {name!r}")
    faults = read.items(f"{where}.faults", entry.get("faults"))
    if not all(isinstance(number, (int, str)) for number in faults):
        read.faults.append(f"{where}.faults: numbers of the fault catalogue are wanted")
    words = {key: read.text(f"{where}.{key}", entry.get(key)) for key in sorted(_PATCH_REQUIRED - {"faults", "probes"})}
    keep = (
        read.text(f"{where}.keep_when_obsolete", entry["keep_when_obsolete"]) if "keep_when_obsolete" in entry else ""
    )
    greps, imports, contracts = _probes(read, f"{where}.probes", entry.get("probes"))
    try:
        parsed = diff.parse(texts[name])
    except KeyError:
        read.faults.append(f"{where}: the file {name}.patch is missing")
        return None
    except (diff.DiffError, UnicodeDecodeError) as error:
        read.faults.append(f"{name}.patch: {error}")
        return None
    return SeriesPatch(
        faults=tuple(faults),
        keep_when_obsolete=keep,
        greps=greps,
        imports=imports,
        contracts=contracts,
        parsed=parsed,
        **words,
    )


def _cross_checks(read: _Reader, series: Series, texts: dict[str, bytes], modules: dict[str, bytes]) -> None:
    known = set(series.files) | {module.target for module in series.modules}
    touched: set[str] = set()
    ids = [patch.id for patch in series.patches]
    read.faults += [f"patch id {name} is used twice" for name in sorted({n for n in ids if ids.count(n) > 1})]
    if sorted(ids) != ids:
        read.faults.append("the patches are not in the order of their numbers")
    for patch in series.patches:
        touched.update(patch.paths)
        read.faults += [
            f"{patch.id}: {path} is not listed in files" for path in patch.paths if path not in series.files
        ]
        unbound = [grep.file for grep in patch.greps if grep.file not in known]
        read.faults += [f"{patch.id}: its probe reads {path}, which the series does not touch" for path in unbound]
    read.faults += [f"files: no patch touches {path}" for path in sorted(set(series.files) - touched)]
    both = {module.target for module in series.modules} & set(series.files)
    read.faults += [f"{path} is both a file of the wheel and a module of ours" for path in sorted(both)]
    read.faults += [f"{name}.patch is not listed in series.yml" for name in sorted(set(texts) - set(ids))]
    used = {module.source for module in series.modules}
    read.faults += [f"{name} is not listed in series.yml" for name in sorted(set(modules) - used)]


def build(name: str, document: object, texts: dict[str, bytes], modules: dict[str, bytes]) -> Series:
    """Make a ``Series`` of a parsed ``series.yml`` and the bytes of its files.

    ``texts`` maps patch ids, ``modules`` source paths to bytes. Raises ``SeriesRefusal`` with all faults.
    """
    read = _Reader()
    top = read.keys("series.yml", document, {"distribution", "version", "files", "patches"}, _SERIES_KEYS)
    files: dict[str, str] = {}
    listed = top.get("files")
    for path, digest in read.keys("files", listed, set(), set(listed) if isinstance(listed, dict) else set()).items():
        if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
            read.faults.append(f"files: {path}: a sha256 in hexadecimal is wanted, found {digest!r}")
        files[read.path("files", path)] = str(digest)
    added = []
    for number, entry in enumerate(read.items("modules", top.get("modules"))):
        where = f"modules[{number}]"
        module = read.keys(where, entry, {"source", "target"}, {"source", "target"})
        source, target = read.path(f"{where}.source", module.get("source")), read.path(where, module.get("target"))
        if source and source not in modules:
            read.faults.append(f"{where}: the file {source} is missing")
        added.append(Module(target, modules.get(source, b""), source))
    entries = read.items("patches", top.get("patches"))
    patches = [_patch(read, f"patches[{number}]", entry, texts) for number, entry in enumerate(entries)]
    if not patches:
        read.faults.append("series.yml: a series without patches does nothing")
    series = Series(
        name=name,
        distribution=normalize(read.text("distribution", top.get("distribution"))),
        version=read.text("version", top.get("version")),
        files=files,
        modules=tuple(added),
        patches=tuple(patch for patch in patches if patch is not None),
        digest=_digest(texts, modules, document),
    )
    if None not in patches:
        _cross_checks(read, series, texts, modules)
    if read.faults:
        raise SeriesRefusal(f"series {name}: " + "; ".join(read.faults))
    return series


def _digest(texts: dict[str, bytes], modules: dict[str, bytes], document: object) -> str:
    parts = [
        f"{kind}:{name}:{sha256(content)}"
        for kind, group in (("p", texts), ("m", modules))
        for name, content in sorted(group.items())
    ]
    return sha256("\n".join([repr(document), *parts]).encode())


def read_directory(path: Path, parse_yaml: Callable[[str], object]) -> dict[str, Any]:
    """Read a series directory into one JSON-able dict, the form that travels to the module.

    The YAML parser is handed in: the hosts have none. Raises ``SeriesRefusal``.
    """
    try:
        document = parse_yaml((path / "series.yml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SeriesRefusal(f"series {path.name}: series.yml cannot be read: {error}") from None
    raw: dict[str, Any] = {"name": path.name, "document": document, "texts": {}, "modules": {}}
    for patch in sorted(path.glob("*.patch")):
        raw["texts"][patch.stem] = _utf8(patch)
    for module in sorted(path.glob("modules/**/*")):
        if module.is_file() and "__pycache__" not in module.parts:
            raw["modules"][module.relative_to(path).as_posix()] = _utf8(module)
    return raw


def _utf8(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SeriesRefusal(f"{path}: {error}") from None


def from_raw(raw: dict[str, Any]) -> Series:
    """The series of a dict made by ``read_directory``. Raises ``SeriesRefusal``."""
    texts = {name: text.encode("utf-8") for name, text in raw["texts"].items()}
    modules = {name: text.encode("utf-8") for name, text in raw["modules"].items()}
    return build(raw["name"], raw["document"], texts, modules)

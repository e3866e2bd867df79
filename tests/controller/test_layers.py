"""Which folder may import which: a folder imports itself and those below it."""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The lowest layer first. Folders of one layer do not import each other.
MODULE_LAYERS = (
    {"shared"},
    {"distributions"},
    {"contracts", "environment", "gates", "jobs"},
    {"patching"},
    {"audit"},
)
HOST_LAYERS = (
    {"shared"},
    {"report", "spec"},
    {"data"},
    {"checkpoint"},
    {"folder"},
    {"extract"},
    {"judge", "imports", "ready", "truth"},
    {"__main__"},
)
# What modules themselves use for their inputs and results: it imports `shared` alone, and no other folder imports it.
MODULE_SIDE = {"module_io"}


def imported(path: Path, root: Path, package: str) -> Iterator[str]:
    """The modules below ``root`` that a file imports anywhere, as ``folder.module`` or ``folder``."""
    here = [*path.relative_to(root).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = ".".join([package, *here[: len(here) - node.level + 1]]) if node.level else ""
            base = ".".join(filter(None, [start, node.module]))
            # `from folder import module` names a module too; what is no module is found in the folder itself.
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith(f"{package}."):
                yield module_of(name[len(package) + 1 :].split("."), root)


def module_of(parts: list[str], root: Path) -> str:
    """The longest beginning of a dotted name that is a module or a folder below ``root``."""
    while len(parts) > 1 and not (root / "/".join(parts)).with_suffix(".py").exists():
        parts = parts[:-1]
    return ".".join(parts)


def graph(root: Path, package: str) -> dict[str, set[str]]:
    """The imports of every module below ``root``, links to other folders included."""
    folders = [root, *(folder for folder in sorted(root.iterdir()) if folder.is_dir())]
    files = [file for folder in folders for file in sorted(folder.glob("*.py")) if file != root / "__init__.py"]
    return {
        ".".join(file.relative_to(root).with_suffix("").parts): set(imported(file, root, package)) for file in files
    }


MODULES = graph(ROOT / "module_utils" / "aerie", "ansible.module_utils.aerie")
HOST = graph(ROOT / "host" / "aerie_host", "aerie_host")


def rank(folder: str, layers: tuple[set[str], ...] = MODULE_LAYERS) -> int:
    """The number of a folder's layer."""
    (number,) = (number for number, layer in enumerate(layers) if folder in layer)
    return number


def folders(names: Iterable[str]) -> set[str]:
    """The folders of modules; a module beside the folders counts as one."""
    return {name.split(".")[0] for name in names}


def test_every_folder_has_a_layer() -> None:
    assert folders(MODULES) == set().union(*MODULE_LAYERS) | MODULE_SIDE
    assert folders(HOST) == set().union(*HOST_LAYERS)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_its_own_folder_and_those_below(module: str) -> None:
    folder = module.split(".")[0]
    others = folders(MODULES[module]) - {folder}
    if folder in MODULE_SIDE:
        assert others <= {"shared"}
    else:
        assert {other for other in others if other in MODULE_SIDE or rank(other) >= rank(folder)} == set()


@pytest.mark.parametrize("module", sorted(HOST))
def test_the_host_program_imports_downwards(module: str) -> None:
    folder = module.split(".")[0]
    others = folders(HOST[module]) - {folder}
    assert {other for other in others if rank(other, HOST_LAYERS) >= rank(folder, HOST_LAYERS)} == set()


@pytest.mark.parametrize("modules", [HOST, MODULES], ids=["host program", "module_utils"])
def test_no_modules_import_each_other_in_a_circle(modules: dict[str, set[str]]) -> None:
    # The name of a folder stands for its __init__, which imports nothing.
    graphlib.TopologicalSorter(modules).prepare()


def test_what_both_pythons_use_imports_the_standard_library_and_itself_alone() -> None:
    """It is found as ``aerie_host.shared`` and as ``ansible.module_utils.aerie.shared``: only relative names do."""
    for file in sorted((ROOT / "host" / "aerie_host" / "shared").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))):
            if isinstance(node, ast.Import):
                outside = {alias.name.split(".")[0] for alias in node.names} - sys.stdlib_module_names
            elif isinstance(node, ast.ImportFrom) and not node.level:
                outside = {str(node.module).split(".")[0]} - sys.stdlib_module_names
            elif isinstance(node, ast.ImportFrom):
                outside = {"a folder above"} if node.level > 1 else set()
            else:
                continue
            assert outside == set(), f"{file.name}, line {node.lineno}"

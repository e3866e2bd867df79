"""Which folder may import which: a folder imports itself and those below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
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
    files = [file for folder in sorted(root.iterdir()) if folder.is_dir() for file in sorted(folder.glob("*.py"))]
    return {
        ".".join(file.relative_to(root).with_suffix("").parts): set(imported(file, root, package)) for file in files
    }


MODULES = graph(ROOT / "module_utils" / "aerie", "ansible.module_utils.aerie")


def rank(folder: str) -> int:
    """The number of a folder's layer."""
    (number,) = (number for number, layer in enumerate(MODULE_LAYERS) if folder in layer)
    return number


def test_every_folder_has_a_layer() -> None:
    folders = {name.split(".")[0] for name in MODULES}
    assert folders == set().union(*MODULE_LAYERS) | MODULE_SIDE


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_its_own_folder_and_those_below(module: str) -> None:
    folder = module.split(".")[0]
    others = {name.split(".")[0] for name in MODULES[module]} - {folder}
    if folder in MODULE_SIDE:
        assert others <= {"shared"}
    else:
        assert {other for other in others if other in MODULE_SIDE or rank(other) >= rank(folder)} == set()

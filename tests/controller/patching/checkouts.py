"""A copy of the checkout's layout with one series on disk, and the wheel that it is for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tools import series as command

from .helpers import PRISTINE, Maker, build_wheel, standard


def write(folder: Path, maker: Maker) -> Path:
    """A series directory on disk."""
    raw = maker.raw()
    directory = folder / "files/patches" / raw["name"]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "series.yml").write_text(yaml.safe_dump(raw["document"], sort_keys=False))
    for name, text in raw["texts"].items():
        (directory / f"{name}.patch").write_text(text, newline="")
    for name, text in raw["modules"].items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    return directory


class Checkout:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.wheel = build_wheel(root, "demo", "1.0", PRISTINE)
        self.maker = standard()
        for entry in self.maker.entries:
            entry["test"] = "tests/test_it.py::test_fails_without"
        (root / "tests").mkdir()
        (root / "tests/test_it.py").write_text(
            "class TestOther:\n    def test_in(self): ...\ndef test_fails_without(): ...\n"
        )
        self.directory = write(root, self.maker)

    def rewrite(self) -> None:
        for file in self.directory.glob("*.patch"):
            file.unlink()
        write(self.root, self.maker)

    def lint(self, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
        code = command.main(["lint", str(self.directory), "--wheel", str(self.wheel)])
        return code, capsys.readouterr().out.splitlines()


def other_release(checkout: Checkout, folder: str, files: dict[str, bytes]) -> str:
    (checkout.root / folder).mkdir()
    return str(build_wheel(checkout.root / folder, "demo", "2.0", files))


def swap(maker: Maker) -> None:
    maker.entries[0], maker.entries[1] = maker.entries[1], maker.entries[0]

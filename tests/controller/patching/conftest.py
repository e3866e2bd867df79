from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools import series as command
from tools import serieskit

from .checkouts import Checkout
from .helpers import Env, Maker, standard

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def env(tmp_path: Path) -> Env:
    """An environment with the distribution ``demo``, pristine."""
    return Env(tmp_path / "env")


@pytest.fixture
def maker() -> Maker:
    """The standard series for ``demo``."""
    return standard()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """A checkout with the standard series, on which the commands work."""
    monkeypatch.setattr(serieskit, "ROOT", tmp_path)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    return Checkout(tmp_path)

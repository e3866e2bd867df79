from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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

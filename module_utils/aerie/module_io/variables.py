"""Process variables as an inventory has them."""

from __future__ import annotations

from typing import Mapping


def as_text(variables: Mapping[str, object]) -> dict[str, str]:
    """Variables of an inventory as a process takes them: values as text, those without a value left out."""
    return {name: str(value) for name, value in variables.items() if value is not None}

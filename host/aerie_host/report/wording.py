"""Write many texts in one line: the first few, and how many more there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN = 5


class Texts:
    """Counts texts and keeps the first few."""

    def __init__(self, shown: int = SHOWN) -> None:
        self._shown = shown
        self._first: list[str] = []
        self.count = 0

    def add(self, text: str) -> None:
        """Count a text."""
        self.count += 1
        if len(self._first) < self._shown:
            self._first.append(text)

    def __str__(self) -> str:
        more = self.count - len(self._first)
        return "; ".join(self._first) + (f"; and {more} more" if more > 0 else "")


def several(texts: Iterable[str], shown: int = SHOWN) -> str:
    """The texts in one line: the first ``shown`` of them, and how many more there are."""
    found = Texts(shown)
    for text in texts:
        found.add(text)
    return str(found)

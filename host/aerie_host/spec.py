"""Typed reading of the specification that a command is given as JSON."""

from __future__ import annotations

from typing import Any, TypeVar

from aerie_host.shared.refusal import UsageRefusal

T = TypeVar("T")
_MISSING = object()


def _as_number(value: Any, kind: type[Any]) -> Any:
    """A number for its text: templates of ansible-core 2.17 hand on numbers as text."""
    if kind in (int, float) and isinstance(value, (str, int)) and not isinstance(value, bool):
        try:
            return kind(value)
        except ValueError:
            return value
    return value


class Spec:
    """A mapping whose values are read with a type; ``UsageRefusal`` names one that is missing or has another type."""

    def __init__(self, values: dict[str, Any], command: str) -> None:
        self._values = values
        self._command = command
        self._read: set[str] = set()

    def _get(self, name: str, kind: type[T], default: object) -> T:
        self._read.add(name)
        value = self._values.get(name, _MISSING)
        if value is _MISSING or value is None:
            if default is _MISSING:
                raise UsageRefusal(self._command, f"the specification lacks {name!r}", kind.__name__)
            return default  # type: ignore[return-value]
        value = _as_number(value, kind)
        # bool is a kind of int in Python; here they are different things.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.refusal(name, value, kind.__name__)
        return value

    def refusal(self, name: str, value: object, wanted: str) -> UsageRefusal:
        """The exception for a value that makes no sense."""
        shown = repr(value) if isinstance(value, (str, list, dict)) else value
        return UsageRefusal(self._command, f"{name!r} is {shown}", wanted)

    def text(self, name: str, default: object = _MISSING) -> str:
        """A string."""
        return self._get(name, str, default)

    def number(self, name: str, default: object = _MISSING) -> int:
        """A whole number."""
        return self._get(name, int, default)

    def real(self, name: str, default: object = _MISSING) -> float:
        """A number with a fraction."""
        return self._get(name, float, default)

    def flag(self, name: str, default: object = _MISSING) -> bool:
        """True or false."""
        return self._get(name, bool, default)

    def mapping(self, name: str, default: object = _MISSING) -> dict[str, Any]:
        """A mapping with string keys."""
        return self._get(name, dict, default)

    def numbers(self, name: str, default: object = _MISSING) -> list[int]:
        """A list of whole numbers."""
        values = self._get(name, list, default)
        if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            raise self.refusal(name, values, "a list of whole numbers")
        return list(values)

    def strings(self, name: str, default: object = _MISSING) -> list[str]:
        """A list of strings."""
        values = self._get(name, list, default)
        if not all(isinstance(value, str) for value in values):
            raise self.refusal(name, values, "a list of strings")
        return list(values)

    def choice(self, name: str, choices: tuple[str, ...], default: object = _MISSING) -> str:
        """One of ``choices``."""
        value = self.text(name, default)
        if value not in choices:
            raise self.refusal(name, value, f"one of {', '.join(choices)}")
        return value

    def finish(self) -> None:
        """Refuse names that nobody read: a misspelt option must not be ignored."""
        unknown = sorted(set(self._values) - self._read)
        if unknown:
            known = ", ".join(sorted(self._read))
            raise UsageRefusal(self._command, f"unknown in the specification: {', '.join(unknown)}", f"only {known}")

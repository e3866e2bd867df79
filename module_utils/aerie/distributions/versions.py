"""Comparison of versions: hosts have no ``packaging``."""

from __future__ import annotations

import re

SPECIFIER = re.compile(r"\s*(>=|<=|==|!=|<|>)\s*(\d+(?:\.\d+)*)\s*")


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version without trailing zeros: ``3.11.0rc1`` gives ``(3, 11)``.

    So ``12.8`` equals ``12.8.0``, as PEP 440 has it.
    """
    numbers = _numbers(version)
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def satisfies(version: str, specifiers: str) -> bool:
    """Whether a version meets ``>=3.10,<3.14``, compared over as many numbers as each specifier has.

    So 3.12.4 meets ``==3.12``. Raises ``ValueError`` for what is not a list of comparisons.
    """
    for specifier in specifiers.split(","):
        match = SPECIFIER.fullmatch(specifier)
        if not match:
            raise ValueError(f"{specifier!r} in {specifiers!r} is not a version comparison")
        wanted = _numbers(match.group(2))
        actual = (_numbers(version) + [0] * len(wanted))[: len(wanted)]
        holds = {
            ">=": actual >= wanted,
            "<=": actual <= wanted,
            "==": actual == wanted,
            "!=": actual != wanted,
            "<": actual < wanted,
            ">": actual > wanted,
        }
        if not holds[match.group(1)]:
            return False
    return True


def meets_pin(version: str, pin: str) -> bool:
    """PEP 440 equality of an exact pin: a pin without a local part admits every local part (``2.10.0+cpu``)."""
    return version == pin or ("+" not in pin and version.split("+")[0] == pin)


def _numbers(version: str) -> list[int]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return [int(part) for part in match.group(0).split(".")] if match else []

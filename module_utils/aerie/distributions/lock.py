"""Read a lock (requirements format with hashes) and tell which of its pins hold for one Python on one machine.

Hosts have no ``packaging``; of PEP 508 this reads what a lock holds: exact pins, direct wheel URLs, and markers.
"""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path
from typing import Iterable, Iterator, Mapping, NamedTuple

from ansible.module_utils.aerie.distributions.names import PATTERN, normalize
from ansible.module_utils.aerie.distributions.versions import release

PIN = re.compile(rf"^({PATTERN})\s*(?:\[[^\]]*\])?\s*==\s*([^\s;]+)\s*(?:;\s*(.+))?$")
DIRECT = re.compile(rf"^({PATTERN})\s*(?:\[[^\]]*\])?\s*@\s*(\S+?)(?:\s+;\s*(.+))?$")
TOKEN = re.compile(r"\s*(\(|\)|'[^']*'|\"[^\"]*\"|~=|===|==|!=|<=|>=|<|>|[A-Za-z_][A-Za-z0-9_.]*)")
VERSION_VARIABLES = ("python_version", "python_full_version", "implementation_version")


class LockError(ValueError):
    """A line of a lock, or a marker, that cannot be read."""


class Pin(NamedTuple):
    """One locked distribution. ``version`` may be empty for a URL that does not tell it."""

    name: str
    version: str
    marker: str


def joined(paths: Iterable[str]) -> str:
    """The text of a lock that lies in parts: a stack's, and that of a wheel which the stack's leaves out.

    Raises ``LockError`` for a part that is missing or no text.
    """
    parts = [_text(Path(path)) for path in paths]
    return "".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LockError(f"lock {path}: {error}") from None


def logical_lines(text: str) -> Iterator[str]:
    """The lines of a requirements file, continuations joined, comments and empty lines left out."""
    pending = ""
    for raw in text.splitlines():
        # Nearly all lines are hashes: looking for the sign first saves most of the time.
        line = re.sub(r"(^|\s)#.*$", "", raw).rstrip() if "#" in raw else raw.rstrip()
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        line, pending = (pending + line).strip(), ""
        if line:
            yield line
    if pending.strip():
        yield pending.strip()


def parse(text: str) -> list[Pin]:
    """The pins of a lock. Options (``--index-url``) are left out; what is no exact pin raises ``LockError``."""
    pins = []
    for line in logical_lines(text):
        if line.startswith("-"):
            continue
        requirement = re.split(r"\s+--(?:hash|config)", line)[0].strip()
        exact = PIN.match(requirement)
        direct = DIRECT.match(requirement)
        if exact:
            pins.append(Pin(normalize(exact.group(1)), exact.group(2), (exact.group(3) or "").strip()))
        elif direct:
            version = wheel_version(direct.group(2))
            pins.append(Pin(normalize(direct.group(1)), version, (direct.group(3) or "").strip()))
        else:
            raise LockError(f"not an exact pin: {requirement}")
    if not pins:
        raise LockError("the lock pins nothing")
    return pins


def wheel_version(url: str) -> str:
    """The version in a wheel's file name, or "" when the URL is none of a wheel."""
    name = url.split("#")[0].split("?")[0].rsplit("/", 1)[-1].replace("%2B", "+").replace("%2b", "+")
    parts = name[: -len(".whl")].split("-") if name.endswith(".whl") else []
    return parts[1] if len(parts) >= 5 else ""


def marker_environment(python: str, implementation: str = "CPython") -> dict[str, str]:
    """The PEP 508 variables of a Python ``major.minor.patch`` on this machine."""
    return {
        "python_version": ".".join(python.split(".")[:2]),
        "python_full_version": python,
        "implementation_version": python,
        "implementation_name": implementation.lower(),
        "platform_python_implementation": implementation,
        "platform_machine": platform.machine(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "sys_platform": sys.platform,
        "os_name": "posix" if sys.platform != "win32" else "nt",
        "extra": "",
    }


def applying(pins: list[Pin], environment: Mapping[str, str]) -> dict[str, str]:
    """Name and version of every pin whose marker holds. Two versions of one name raise ``LockError``."""
    chosen: dict[str, str] = {}
    for pin in pins:
        if pin.marker and not evaluate(pin.marker, environment):
            continue
        if chosen.setdefault(pin.name, pin.version) != pin.version:
            raise LockError(f"{pin.name} is pinned to {chosen[pin.name]} and to {pin.version} for the same Python")
    return chosen


def evaluate(marker: str, environment: Mapping[str, str]) -> bool:
    """Whether a PEP 508 marker holds. Raises ``LockError`` for what cannot be read."""
    tokens = _tokens(marker)
    value, rest = _either(tokens, environment)
    if rest:
        raise LockError(f"marker {marker!r}: nothing may follow, found {rest[0]!r}")
    return value


def _tokens(marker: str) -> list[str]:
    tokens, place = [], 0
    text = marker.strip()
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            raise LockError(f"marker {marker!r}: cannot be read from {text[place:]!r} on")
        tokens.append(match.group(1))
        place = match.end()
        while place < len(text) and text[place].isspace():
            place += 1
    return tokens


def _either(tokens: list[str], environment: Mapping[str, str]) -> tuple[bool, list[str]]:
    value, tokens = _both(tokens, environment)
    while tokens[:1] == ["or"]:
        other, tokens = _both(tokens[1:], environment)
        value = value or other
    return value, tokens


def _both(tokens: list[str], environment: Mapping[str, str]) -> tuple[bool, list[str]]:
    value, tokens = _one(tokens, environment)
    while tokens[:1] == ["and"]:
        other, tokens = _one(tokens[1:], environment)
        value = value and other
    return value, tokens


def _one(tokens: list[str], environment: Mapping[str, str]) -> tuple[bool, list[str]]:
    if tokens[:1] == ["("]:
        value, rest = _either(tokens[1:], environment)
        if rest[:1] != [")"]:
            raise LockError("marker: a parenthesis is not closed")
        return value, rest[1:]
    if len(tokens) < 3:
        raise LockError(f"marker: a comparison is wanted, found {' '.join(tokens) or 'nothing'}")
    width = 2 if tokens[1] == "not" else 1
    operator = " ".join(tokens[1 : 1 + width])
    if len(tokens) < 2 + width:
        raise LockError("marker: the right side of a comparison is missing")
    left, right = tokens[0], tokens[1 + width]
    by_version = left in VERSION_VARIABLES or right in VERSION_VARIABLES
    held = _compare(_value(left, environment), operator, _value(right, environment), by_version)
    return held, tokens[2 + width :]


def _value(token: str, environment: Mapping[str, str]) -> str:
    if token[0] in "'\"":
        return token[1:-1]
    if token not in environment:
        raise LockError(f"marker: unknown variable {token}")
    return environment[token]


def _compare(left: str, operator: str, right: str, by_version: bool) -> bool:
    if operator in ("in", "not in"):
        return (left in right) == (operator == "in")
    if operator in ("==", "!=") and right.endswith(".*"):
        prefix = right[:-2].split(".")
        return (left.split(".")[: len(prefix)] == prefix) == (operator == "==")
    if operator == "~=":
        prefix = right.split(".")[:-1]
        return left.split(".")[: len(prefix)] == prefix and release(left) >= release(right)
    sides = (release(left), release(right)) if by_version else (left, right)
    results = {
        "==": sides[0] == sides[1],
        "===": left == right,
        "!=": sides[0] != sides[1],
        "<": sides[0] < sides[1],  # type: ignore[operator]  # both sides are of one kind
        "<=": sides[0] <= sides[1],  # type: ignore[operator]
        ">": sides[0] > sides[1],  # type: ignore[operator]
        ">=": sides[0] >= sides[1],  # type: ignore[operator]
    }
    if operator not in results:
        raise LockError(f"marker: unknown operator {operator}")
    return results[operator]

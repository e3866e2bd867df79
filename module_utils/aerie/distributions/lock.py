"""The lock of a stack (requirements format with hashes): its pins, and which of them hold for a Python and a machine.

Hosts have no ``packaging``. Of PEP 508 this reads what a lock contains: exact pins, direct wheel URLs, and markers.
"""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path
from typing import Iterable, Iterator, Mapping, NamedTuple

from ansible.module_utils.aerie.distributions.names import PATTERN, normalize
from ansible.module_utils.aerie.distributions.versions import release
from ansible.module_utils.aerie.shared.refusal import Refusal

PIN = re.compile(rf"^({PATTERN})\s*(?:\[[^\]]*\])?\s*==\s*([^\s;]+)\s*(?:;\s*(.+))?$")
DIRECT = re.compile(rf"^({PATTERN})\s*(?:\[[^\]]*\])?\s*@\s*(\S+?)(?:\s+;\s*(.+))?$")
TOKEN = re.compile(r"\s*(\(|\)|'[^']*'|\"[^\"]*\"|~=|===|==|!=|<=|>=|<|>|[A-Za-z_][A-Za-z0-9_.]*)")
A_MARKER = "a marker as PEP 508 has it"
VERSION_VARIABLES = ("python_version", "python_full_version", "implementation_version")


def refusal(found: str, wanted: str, path: object = None) -> Refusal:
    """The refusal of a lock, or of a marker in it, that cannot be read."""
    remedy = "restore the lock as it was committed, or renew it: make lock STACK=<stack>"
    return Refusal("lock", found, wanted, remedy, None if path is None else str(path))


class Pin(NamedTuple):
    """One locked distribution. ``version`` is empty for a URL whose file name has none."""

    name: str
    version: str
    marker: str


def joined(paths: Iterable[str]) -> str:
    """The text of a lock in several files: the stack's, and that of the vLLM wheel where the stack's leaves it out.

    Raises a ``Refusal`` for a part that is missing or is not text.
    """
    parts = [_text(Path(path)) for path in paths]
    return "".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise refusal(f"{path}: {error}", "the text of a lock", path) from None


def logical_lines(text: str) -> Iterator[str]:
    """The lines of a requirements file, continuations joined, comments and empty lines left out."""
    pending = ""
    for raw in text.splitlines():
        # Nearly all lines are hashes: looking for # first saves most of the time.
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
    """The pins of a lock. Options (``--index-url``) are left out; anything but an exact pin raises a ``Refusal``."""
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
            raise refusal(requirement, "an exact pin in each line")
    if not pins:
        raise refusal("no pins", "a pin for each distribution")
    return pins


def wheel_version(url: str) -> str:
    """The version in a wheel's file name; "" when the URL is not that of a wheel."""
    name = url.split("#")[0].split("?")[0].rsplit("/", 1)[-1].replace("%2B", "+").replace("%2b", "+")
    parts = name[: -len(".whl")].split("-") if name.endswith(".whl") else []
    return parts[1] if len(parts) >= 5 else ""


def marker_variables(python: str, implementation: str = "CPython") -> dict[str, str]:
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


def applying(pins: list[Pin], variables: Mapping[str, str]) -> dict[str, str]:
    """Name and version of every pin whose marker holds. Two versions of one name raise a ``Refusal``."""
    chosen: dict[str, str] = {}
    for pin in pins:
        if pin.marker and not evaluate(pin.marker, variables):
            continue
        if chosen.setdefault(pin.name, pin.version) != pin.version:
            found = f"{pin.name} is pinned to {chosen[pin.name]} and to {pin.version} for the same Python"
            raise refusal(found, "one version of each distribution")
    return chosen


def evaluate(marker: str, variables: Mapping[str, str]) -> bool:
    """Whether a PEP 508 marker holds. Raises a ``Refusal`` for one that cannot be read."""
    tokens = _tokens(marker)
    value, rest = _disjunction(tokens, variables)
    if rest:
        raise refusal(f"marker {marker!r} with {rest[0]!r} after its end", A_MARKER)
    return value


def _tokens(marker: str) -> list[str]:
    tokens, place = [], 0
    text = marker.strip()
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            raise refusal(f"marker {marker!r}, which cannot be read from {text[place:]!r} on", A_MARKER)
        tokens.append(match.group(1))
        place = match.end()
        while place < len(text) and text[place].isspace():
            place += 1
    return tokens


# Each of these reads one part of a marker (PEP 508, `marker_or` and below): its value, and the tokens after it.


def _disjunction(tokens: list[str], variables: Mapping[str, str]) -> tuple[bool, list[str]]:
    value, tokens = _conjunction(tokens, variables)
    while tokens[:1] == ["or"]:
        right, tokens = _conjunction(tokens[1:], variables)
        value = value or right
    return value, tokens


def _conjunction(tokens: list[str], variables: Mapping[str, str]) -> tuple[bool, list[str]]:
    value, tokens = _comparison(tokens, variables)
    while tokens[:1] == ["and"]:
        right, tokens = _comparison(tokens[1:], variables)
        value = value and right
    return value, tokens


def _comparison(tokens: list[str], variables: Mapping[str, str]) -> tuple[bool, list[str]]:
    if tokens[:1] == ["("]:
        value, rest = _disjunction(tokens[1:], variables)
        if rest[:1] != [")"]:
            raise refusal("a marker with an open parenthesis", A_MARKER)
        return value, rest[1:]
    if len(tokens) < 3:
        raise refusal(f"a marker with {' '.join(tokens) or 'nothing'} in place of a comparison", A_MARKER)
    width = 2 if tokens[1] == "not" else 1
    operator = " ".join(tokens[1 : 1 + width])
    if len(tokens) < 2 + width:
        raise refusal("a marker with a comparison that has no right side", A_MARKER)
    left, right = tokens[0], tokens[1 + width]
    by_version = left in VERSION_VARIABLES or right in VERSION_VARIABLES
    holds = _compare(_value(left, variables), operator, _value(right, variables), by_version)
    return holds, tokens[2 + width :]


def _value(token: str, variables: Mapping[str, str]) -> str:
    if token[0] in "'\"":
        return token[1:-1]
    if token not in variables:
        raise refusal(f"a marker with the unknown variable {token}", A_MARKER)
    return variables[token]


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
        raise refusal(f"a marker with the unknown operator {operator}", A_MARKER)
    return results[operator]

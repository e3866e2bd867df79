"""Reading locks, with `packaging` as the oracle for markers."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

from ansible.module_utils.aerie.distributions import lock
from ansible.module_utils.aerie.distributions.names import normalize
from ansible.module_utils.aerie.shared.refusal import Refusal

STACKS = Path(__file__).resolve().parents[3] / "stacks"

MARKERS = [
    "python_full_version < '3.11'",
    "python_full_version >= '3.11'",
    "python_full_version == '3.11.*'",
    "python_full_version != '3.11.*'",
    "python_version ~= '3.10'",
    "'3.12' <= python_version",
    "platform_machine == 'x86_64' and sys_platform == 'linux'",
    "platform_machine == 'aarch64' or platform_machine == 'arm64' or platform_machine == 'x86_64'",
    "python_full_version >= '3.12' and sys_platform == 'emscripten'",
    (
        "python_full_version >= '3.11' and (implementation_name == 'pypy' or (implementation_name != 'PyPy' and "
        "implementation_name != 'pypy' and platform_python_implementation != 'PyPy'))"
    ),
    "sys_platform == 'never'",
    "sys_platform not in 'win32 cygwin'",
    "'linux' in sys_platform",
    "sys_platform == 'win32' and python_version < '3.9' or platform_python_implementation == 'CPython'",
    "(sys_platform == 'win32' or os_name == 'posix') and python_version >= '3'",
]


@pytest.mark.parametrize("python", ["3.8.18", "3.10.13", "3.11.0", "3.11.7", "3.12.1", "3.13.0"])
@pytest.mark.parametrize("marker", MARKERS)
def test_markers_hold_as_packaging_says(marker: str, python: str) -> None:
    environment = lock.marker_variables(python)
    assert lock.evaluate(marker, environment) == Marker(marker).evaluate(dict(environment))


@pytest.mark.parametrize("path", sorted(STACKS.glob("*.lock")), ids=lambda path: path.name)
@pytest.mark.parametrize("python", ["3.10.13", "3.11.7", "3.12.1", "3.13.0"])
def test_the_stacks_locks_are_read_as_packaging_reads_them(path: Path, python: str) -> None:
    environment = lock.marker_variables(python)
    text = path.read_text()
    expected = {}
    for line in lock.logical_lines(text):
        if not line.startswith("-"):
            requirement = Requirement(line.split(" --hash")[0])
            if requirement.marker is None or requirement.marker.evaluate(dict(environment)):
                expected[normalize(requirement.name)] = next(iter(requirement.specifier)).version
    assert lock.applying(lock.parse(text), environment) == expected
    assert len(expected) > 100


@pytest.mark.parametrize(
    "marker",
    ["", "python_version", "python_version >", "colour == 'red'", "(os_name == 'nt'", "os_name == 'nt' nt", "a ? b",
     "os_name =! 'nt'"],
)  # fmt: skip
def test_a_marker_that_cannot_be_read_is_refused(marker: str) -> None:
    with pytest.raises(Refusal):
        lock.evaluate(marker, lock.marker_variables("3.11.7"))


def test_pins_hashes_comments_options_and_urls() -> None:
    text = """
# made by a tool
--index-url https://example.invalid/simple
Foo_Bar==1.2 ; python_version > '3.0' \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via something
vllm @ https://example.invalid/vllm-0.16.0rc2.dev388%2Bg7291d1b28-cp38-abi3-manylinux1_x86_64.whl#sha256=00
"""
    assert lock.parse(text) == [
        lock.Pin("foo-bar", "1.2", "python_version > '3.0'"),
        lock.Pin("vllm", "0.16.0rc2.dev388+g7291d1b28", ""),
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n", "foo>=1\n", "foo\n", "./local\n"])
def test_a_lock_that_pins_nothing_or_not_exactly_is_refused(text: str) -> None:
    with pytest.raises(Refusal):
        lock.parse(text)


def test_two_versions_for_one_python_are_refused() -> None:
    pins = lock.parse("a==1\na==2 ; python_version > '3.0'\n")
    with pytest.raises(Refusal, match="a is pinned to 1 and to 2"):
        lock.applying(pins, lock.marker_variables("3.11.7"))

"""Comparison of versions, with `packaging` as the oracle where both have an opinion."""

from __future__ import annotations

import pytest
from packaging.version import Version

from ansible.module_utils.aerie.distributions.versions import meets_pin, release, satisfies


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("3.10.13", ">=3.10,<3.14", True),
        ("3.13.0rc1", ">=3.10,<3.14", True),
        ("3.14.0", ">=3.10,<3.14", False),
        ("3.9.18", ">=3.10,<3.14", False),
        ("3.12.1", "==3.12", True),
        ("3.12.1", ">=3.12,<3.13", True),
        ("3.13.0", ">=3.12,<3.13", False),
        ("3.12", ">=3.12.0", True),
        ("3.12", ">=3.12.1", False),
        ("3.1", ">3.0", True),
        ("3.0.5", "<=3.0", True),
    ],
)
def test_a_version_against_specifiers(version: str, wanted: str, fits: bool) -> None:
    assert satisfies(version, wanted) is fits


def test_what_is_not_a_comparison_is_refused() -> None:
    with pytest.raises(ValueError, match="'about 3' in 'about 3'"):
        satisfies("3.12", "about 3")


@pytest.mark.parametrize("left", ["2.31", "12.8", "12.8.0", "3.0", "10.0", "0.0"])
@pytest.mark.parametrize("right", ["2.31.0", "12.8", "12", "3", "9.9.9", "0"])
def test_releases_compare_as_pep_440_has_them(left: str, right: str) -> None:
    assert (release(left) >= release(right)) == (Version(left) >= Version(right))
    assert (release(left) == release(right)) == (Version(left) == Version(right))


@pytest.mark.parametrize(
    ("version", "pin", "fits"),
    [("2.10.0+cpu", "2.10.0", True), ("2.10.0", "2.10.0+cpu", False), ("2.10.1", "2.10.0", False)],
)
def test_a_pin_without_a_local_part_admits_each(version: str, pin: str, fits: bool) -> None:
    assert meets_pin(version, pin) is fits

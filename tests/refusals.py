"""Expect a refusal of the host program, with the exit code that it leads to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from aerie_host.shared.refusal import Refusal, UsageRefusal


@contextlib.contextmanager
def refused(match: str) -> Iterator[pytest.ExceptionInfo[Refusal]]:
    """The block is refused with exit code 1: the work was tried. The refusal's text matches."""
    with pytest.raises(Refusal, match=match) as caught:
        yield caught
    assert not isinstance(caught.value, UsageRefusal)


@contextlib.contextmanager
def usage_refused(match: str) -> Iterator[pytest.ExceptionInfo[UsageRefusal]]:
    """The block is refused with exit code 2: the work could not be tried. The refusal's text matches."""
    with pytest.raises(UsageRefusal, match=match) as caught:
        yield caught

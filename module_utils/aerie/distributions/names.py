"""Names of distributions."""

from __future__ import annotations

import re

PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*"


def normalize(name: str) -> str:
    """The comparable form of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()

"""Reports of runs: the verdict, its lines for a terminal, its pages for people (HTML) and CI systems (JUnit XML)."""

import aerie_paths  # noqa: F401  (makes module_utils importable)

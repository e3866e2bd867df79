"""Tools for the maintainers of patch series; see docs/patches.md."""

from aerie_paths import CHECKOUT

# The checkout whose series are read; tests name another.
ROOT = CHECKOUT

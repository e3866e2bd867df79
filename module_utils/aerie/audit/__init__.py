"""Rung 1 of the verification ladder: what can be told about an environment without importing it."""

"""Rung 1 of the verification ladder: what files say about an environment, without importing it."""

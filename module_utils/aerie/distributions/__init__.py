"""Installed Python distributions, their names and versions, the lock that pins them, and the Pythons of a host."""

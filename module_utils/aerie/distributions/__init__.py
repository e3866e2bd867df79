"""Installed Python distributions, their versions, and the lock that pins them."""

"""The Python environment of a host: comparing it with its lock, building a new one, going back to an old one."""

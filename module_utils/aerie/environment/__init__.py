"""The locked Python environment of a host: what it should hold, what it holds, building it beside the old one."""

"""Commands of the host program: run to the end, or kept as a job of the host that outlives the connection."""

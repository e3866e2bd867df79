"""Commands of the host program: run to their end, or as a job that goes on when the connection ends."""

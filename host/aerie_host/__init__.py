"""The part of Aerie that runs inside the ML environment of a host."""

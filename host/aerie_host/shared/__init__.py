"""What both Pythons of a host use: the host's own (3.8, standard library only) and the ML environment's."""

"""Stage ``imports``: import everything that extraction and training use, in a clean interpreter."""

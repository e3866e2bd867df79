"""Stage ``judge``: prove the files that an extraction wrote."""

"""Stage ``truth``: compare captured states with an independent Transformers forward of the same checkpoint."""

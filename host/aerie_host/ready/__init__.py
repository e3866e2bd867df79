"""Stage ``ready``: read the files as training does, and train a small draft model on them."""

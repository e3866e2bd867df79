"""From the rows of a data file to samples: token ids and a loss mask for each conversation."""

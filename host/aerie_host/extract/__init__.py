"""Stage ``extract``: run the target model over the samples and have their hidden states written."""

"""The target model's checkpoint: its weights, how it is unpacked, and its forward in Transformers."""

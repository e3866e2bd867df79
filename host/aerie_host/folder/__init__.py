"""The folder of one extraction: its layout, each sample's record, and how samples are written, kept and replaced."""

"""Read a sample's file as training reads it, or say why it cannot be read."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING, Any

import torch

from aerie_host.folder import safetensors_file

if TYPE_CHECKING:
    from pathlib import Path

ZIP_BEGINS = b"PK\x03\x04"
# Exceptions of torch's reader for files that are no samples.
ERRORS = (OSError, RuntimeError, EOFError, pickle.UnpicklingError, KeyError, ValueError, AttributeError, TypeError)


def load(path: Path, mapped: bool = False) -> dict[str, Any]:
    """Load a sample (see ``aerie_host.folder.sample_format`` for its keys); ``ValueError`` says why it cannot be read.

    The content is not checked. ``mapped``: tensors are views of the file in the page cache. They are read when they are
    used, and freed with the result.
    """
    if path.suffix == ".safetensors":
        # This format is always mapped.
        return safetensors_file.load(path)
    try:
        data = torch.load(path, weights_only=True, map_location="cpu", mmap=mapped)
    except ERRORS as error:
        raise ValueError(why_unreadable(path, error)) from error
    if not isinstance(data, dict):
        raise ValueError(f"holds a {type(data).__name__}, wanted a dict")
    return data


def why_unreadable(path: Path, error: Exception) -> str:
    """One line on what is wrong with a file that torch refused with ``error``."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    code = re.search(r"GLOBAL (\S+) was not an allowed global|Unsupported (?:class|global)[^\n]*?(\w+\.[\w.]+)", text)
    if code:
        return f"holds a pickle that would run code ({code[1] or code[2]}): it was not loaded"
    with path.open("rb") as stream:
        begins = stream.read(len(ZIP_BEGINS))
    if not begins:
        return "is empty, 0 bytes"
    if begins != ZIP_BEGINS:
        return "is no zip archive, as torch.save writes"
    if "central directory" in text or "not a ZIP" in text:
        return "is cut off: it begins as a zip archive, whose directory at the end is missing"
    return f"cannot be loaded: {(text.splitlines() or [type(error).__name__])[0][:160]}"

"""The bytes that samples take on disk."""

from __future__ import annotations

# A state is bfloat16; input_ids and loss_mask are int64.
BYTES_PER_STATE = 2
BYTES_PER_TOKEN_BESIDES = 16
# The most that a file holds beside its tensors' content (names, pickle, alignment), once and for each tensor. Measured
# with torch 2.10: 2.8 kB for 4 layers, 35 kB for 128. ``torch.save`` repeats the file's name with each tensor; these
# bounds hold for the longest name (255 bytes). A safetensors file needs less.
BYTES_PER_FILE = 4096
BYTES_PER_TENSOR = 1024


def bytes_per_token(layers: int, hidden_size: int) -> int:
    """Bytes of one token: a state of each layer, its id and its place in the loss mask."""
    return layers * hidden_size * BYTES_PER_STATE + BYTES_PER_TOKEN_BESIDES


def overhead(tensors: int) -> int:
    """Bytes that a file with so many tensors holds beside their content, at most."""
    return BYTES_PER_FILE + tensors * BYTES_PER_TENSOR


def bytes_of_samples(samples: int, tokens: int, layers: int, hidden_size: int) -> int:
    """Bytes that ``samples`` files with ``tokens`` tokens in all take, at most."""
    return tokens * bytes_per_token(layers, hidden_size) + samples * overhead(layers + 2)

"""Write and read a sample as a safetensors file: without copying the states, with the content of a ``.pt`` file.

Tensors: ``input_ids`` and ``loss_mask``, int64 ``[seq]``, and ``hidden_states.000``, ``hidden_states.001`` and so on,
bfloat16 ``[seq, hidden]``: in alphabetical order of their names, they are the layers in the requested order. Metadata:
``layers`` (their ids, as JSON) and ``convention`` (what a state is).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import torch

from aerie_host.folder.sample_format import HIDDEN_STATES, TOKEN_KEYS
from aerie_host.shared.model_config import CONVENTION

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STATES = f"{HIDDEN_STATES}."
DTYPES = {torch.int64: "I64", torch.bfloat16: "BF16"}


class Writable(Protocol):
    """A stream of bytes."""

    def write(self, data: bytes | memoryview) -> int:
        """Write bytes."""


def save(data: dict[str, Any], stream: Writable, layers: Sequence[int]) -> None:
    """Write a sample (see ``aerie_host.folder.sample_format``) and its layer ids; the tensors must be contiguous."""
    tensors = {key: data[key] for key in TOKEN_KEYS}
    tensors |= {f"{STATES}{place:03}": states for place, states in enumerate(data[HIDDEN_STATES])}
    header: dict[str, Any] = {"__metadata__": {"layers": json.dumps(list(layers)), "convention": CONVENTION}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    # The format aligns the tensors to eight bytes.
    text += b" " * (-len(text) % 8)
    stream.write(len(text).to_bytes(8, "little") + text)
    for tensor in tensors.values():
        stream.write(tensor.reshape(-1).view(torch.uint8).numpy().data)


def load(path: Path) -> dict[str, Any]:
    """Load a sample with the keys that a ``.pt`` file has; other tensors of the file are kept under their names.

    ``ValueError`` says why it cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            names = sorted(file.keys())
            states = [file.get_tensor(name) for name in names if name.startswith(STATES)]
            others = {name: file.get_tensor(name) for name in names if not name.startswith(STATES)}
    except SafetensorError as error:
        raise ValueError(f"is no whole safetensors file: {error}") from error
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    return {**others, HIDDEN_STATES: states}

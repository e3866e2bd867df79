# SPDX-License-Identifier: Apache-2.0
"""What a decoder layer hands over: an update and its residual, or a complete state.

vLLM's decoder layers return ``(hidden, residual)`` in two meanings. In most models the
state is ``hidden + residual``: the next layer's first norm adds them. In others
``hidden`` is the state already, and the residual beside it is left over. No name tells
them apart, so each layer's output is tried on whatever reads it next: what does not
change when the residual changes ignores it; what does not change when an amount moves
from the residual to the hidden states adds them.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["COMPLETE", "SUM", "HandoverProbe"]

COMPLETE, SUM = "complete", "sum"
# Relative distance up to which two results of a norm count as equal: the rounding of bfloat16 stays well below it, a
# change of the input by its own size far above.
EQUAL = 0.1
_SEED = 20_000


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in what a layer returned, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for part in value for tensor in _tensors(part)]
    return []


def _equal(result: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two results ``[tokens, hidden]`` are the same but for rounding, token by token."""
    result, other = result.float(), other.float()
    scale = torch.linalg.vector_norm(result, dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
    distance = torch.linalg.vector_norm(result - other, dim=-1) / scale
    return bool(distance.amax() <= EQUAL)


def _made_of(read: list[torch.Tensor], hidden: torch.Tensor, residual: torch.Tensor) -> str:
    """What tensors that a model made between two layers are: ``SUM``, ``COMPLETE``, or nothing where both would fit."""
    if not bool(torch.isfinite(hidden + residual).all()):
        # A trial run may compute what is no number; nothing can be told from that.
        return ""
    added = any(torch.equal(value, hidden + residual) for value in read)
    complete = any(torch.equal(value, hidden) for value in read)
    return {(True, False): SUM, (False, True): COMPLETE}.get((added, complete), "")


class HandoverProbe:
    """Watches one run of the model, and finds out what each decoder layer hands over.

    Every rank of a tensor-parallel group must watch the same run. Use it as a context
    manager; ``found`` then maps each layer to ``COMPLETE`` or ``SUM``.

    Args:
        model: the language model that holds the layers.
        layers: its decoder layers.
        layer_ids: 0-based layers to find out about.
    """

    def __init__(self, model: torch.nn.Module, layers: torch.nn.ModuleList, layer_ids: set[int]) -> None:
        self._numbers = {layers[number]: number for number in layer_ids}
        # A norm reads what is handed over, inside the next layer or after the last one. A layer as a whole is no
        # reader: its attention computes nothing in a trial run.
        whole = {module for module in model.modules() if layers in set(module.modules())} | {layers, *layers}
        self._readers = [module for module in model.modules() if module not in whole]
        self._unread: tuple[int, torch.Tensor, torch.Tensor] | None = None
        self._trying = False
        self._handles: list[Any] = []
        self.found: dict[int, str] = {}

    def __enter__(self) -> HandoverProbe:
        for reader in self._readers:
            self._handles.append(reader.register_forward_pre_hook(self._before_reader, with_kwargs=True))
        for layer in self._numbers:
            self._handles.append(layer.register_forward_hook(self._after_layer))
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        missing = sorted(set(self._numbers.values()) - set(self.found))
        if missing and not failed:
            raise ValueError(f"nothing reads what decoder layers {missing} return: their states cannot be told")

    def _after_layer(self, layer: torch.nn.Module, _args: Any, output: Any) -> None:
        if self._trying:
            return
        number, tensors = self._numbers[layer], _tensors(output)
        if len(tensors) == 1:
            self.found[number] = COMPLETE
        elif len(tensors) == 2 and tensors[0].shape == tensors[1].shape:
            self._unread = number, tensors[0], tensors[1]
        else:
            shapes = [list(tensor.shape) for tensor in tensors]
            raise ValueError(
                f"decoder layer {number} returns {len(tensors)} tensors {shapes}; "
                "its state can be told only from one tensor or two of one shape"
            )

    def _before_reader(self, reader: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._trying or self._unread is None:
            return
        number, hidden, residual = self._unread
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        read = [value for value in tensors if value.shape == hidden.shape]
        if not read:
            # It reads something else: positions, for example.
            return
        self._unread = None
        if any(value is residual for value in read) and any(value is hidden for value in read):
            self._trying = True
            try:
                found = self._try(reader, args, kwargs, hidden, residual)
            finally:
                self._trying = False
        elif any(value is hidden for value in read):
            found = COMPLETE
        else:
            found = _made_of(read, hidden, residual)
        if not found:
            raise ValueError(
                f"decoder layer {number} returns two tensors, and {type(reader).__name__}, which reads them, neither "
                "adds them nor ignores the second: its state cannot be told"
            )
        self.found[number] = found

    @staticmethod
    def _try(
        reader: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        hidden: torch.Tensor,
        residual: torch.Tensor,
    ) -> str:
        """What ``reader`` makes of the pair: ``SUM``, ``COMPLETE``, or nothing where it cannot be told."""
        # The same numbers on every rank; what the layer itself returned may be all alike in a trial run.
        draw = torch.Generator().manual_seed(_SEED)
        update, rest, amount = (torch.randn(hidden.shape, generator=draw).to(hidden) for _ in range(3))

        def read(update: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
            # Readers work in place.
            swap = {id(hidden): update.clone(), id(residual): rest.clone()}
            result = reader(
                *(swap.get(id(value), value) for value in args),
                **{name: swap.get(id(value), value) for name, value in kwargs.items()},
            )
            return _tensors(result)[0].clone()

        plain = read(update, rest)
        ignored = _equal(plain, read(update, rest + amount))
        added = _equal(plain, read(update + amount, rest - amount))
        return {(True, False): COMPLETE, (False, True): SUM}.get((ignored, added), "")

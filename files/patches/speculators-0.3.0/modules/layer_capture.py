# SPDX-License-Identifier: Apache-2.0
"""Worker extension that captures hidden states with forward hooks.

The model's own forward runs untouched: a hook on each target decoder layer adds
the layer's update to its residual and keeps the sum. Rows are attributed to
requests by the batch layout of the step they were computed in, never by a
running offset, so order, chunked prefill and pre-emption cannot mix sequences.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from vllm.config import CompilationMode
from vllm.distributed import get_pp_group, get_tp_group
from vllm.model_executor.models.interfaces import supports_multimodal

__all__ = ["LayerCapture"]


class Rows(NamedTuple):
    """Rows ``[begin, end)`` of a step hold positions from ``position`` on."""

    request_id: str
    position: int
    begin: int
    end: int


class Step(NamedTuple):
    """One execution of the model: its layout and a state per captured layer."""

    rows: list[Rows]
    states: dict[int, torch.Tensor]


def decoder_layers(model: torch.nn.Module) -> torch.nn.ModuleList:
    """Return the decoder layers of a target model, also inside a multimodal wrapper.

    Raises:
        ValueError: the model keeps its decoder layers where vLLM's text models do not.
    """
    # vLLM answers supports_multimodal() by interface, get_language_model() by module.
    language_model = (
        model.get_language_model() if supports_multimodal(model) else model
    )
    layers = getattr(getattr(language_model, "model", None), "layers", None)
    if not isinstance(layers, torch.nn.ModuleList) or len(layers) == 0:
        raise ValueError(
            f"{type(model).__name__}: no decoder layers at `model.layers` of its "
            f"language model ({type(language_model).__name__}); hidden states of this "
            "architecture cannot be captured"
        )
    return layers


def layer_state(output: Any, layer_id: int) -> torch.Tensor:
    """Return what decoder layer ``layer_id`` hands on: update plus residual.

    Args:
        output: ``(update, residual)`` or one tensor, each ``[tokens, hidden]``.

    Returns:
        A tensor ``[tokens, hidden]`` in the model's dtype that no later layer writes
        to (vLLM's fused norms work in place on update and residual).
    """
    if isinstance(output, torch.Tensor):
        return output.clone()
    if (
        isinstance(output, tuple)
        and len(output) == 2
        and isinstance(output[0], torch.Tensor)
    ):
        update, residual = output
        if residual is None:
            return update.clone()
        if isinstance(residual, torch.Tensor) and residual.shape == update.shape:
            return update + residual
    raise TypeError(
        f"decoder layer {layer_id} returned {type(output).__name__}, expected a tensor "
        "or (update, residual)"
    )


def join_rows(request_id: str, parts: list[tuple[int, torch.Tensor]]) -> torch.Tensor:
    """Join the pieces of one sequence, in the order they were computed.

    A piece that starts before the end of what is there replaces it from there on: a
    pre-empted request is computed again from its start.

    Args:
        parts: ``(position of the first row, rows [n, hidden])``.

    Returns:
        A tensor ``[positions, hidden]`` of its own storage, on the CPU.

    Raises:
        RuntimeError: positions are missing.
    """
    pieces: list[torch.Tensor] = []
    covered = 0
    for position, rows in parts:
        if position > covered:
            raise RuntimeError(
                f"{request_id}: rows {covered} to {position - 1} never passed the model"
            )
        while covered > position:
            last = pieces.pop()
            covered -= len(last)
            if covered < position:
                pieces.append(last[: position - covered])
                covered = position
        pieces.append(rows)
        covered += len(rows)
    return torch.cat(pieces).cpu()


class LayerCapture:
    """Mixed into vLLM's worker by ``ParallelConfig.worker_extension_cls``.

    Only tensor-parallel rank 0 captures: after a layer's last all-reduce every rank
    holds the same rows.
    """

    def _setup_hidden_states_capture(self, layer_ids: list[int]) -> None:
        """Register hooks on the target layers.

        Args:
            layer_ids: 0-based decoder layers, in the order in which their states are
                to be returned; a layer may be named twice.
        """
        worker: Any = self
        config = worker.vllm_config
        if config.compilation_config.mode not in (None, CompilationMode.NONE):
            raise ValueError(
                "hidden states are captured by forward hooks, which compiled code does "
                "not run; build the engine with enforce_eager=True"
            )
        if get_pp_group().world_size != 1:
            raise ValueError("pipeline parallelism is not supported, use tensor parallelism")
        layers = decoder_layers(worker.model_runner.model)
        wanted = config.model_config.hf_text_config.num_hidden_layers
        if len(layers) < wanted or max(layer_ids) >= wanted:
            raise ValueError(
                f"asked for layers {layer_ids}; the model has {len(layers)} decoder "
                f"layers and its configuration names {wanted}"
            )
        self._layer_ids = list(layer_ids)
        self._steps: list[Step] = []
        self._armed = False
        if get_tp_group().rank_in_group != 0:
            return
        layers[0].register_forward_pre_hook(self._begin_step)
        for layer_id in sorted(set(layer_ids)):
            layers[layer_id].register_forward_hook(self._keep_layer(layer_id))

    def _begin_step(self, _layer: torch.nn.Module, _args: Any) -> None:
        if not self._armed:
            return
        runner: Any = self.model_runner  # type: ignore[attr-defined]
        batch = runner.input_batch
        count = batch.num_reqs
        bounds = runner.query_start_loc.np[: count + 1].tolist()
        computed = batch.num_computed_tokens_cpu[:count].tolist()
        rows = [
            Rows(batch.req_ids[i], computed[i], bounds[i], bounds[i + 1])
            for i in range(count)
        ]
        self._steps.append(Step(rows, {}))

    def _keep_layer(self, layer_id: int) -> Any:
        def hook(_layer: torch.nn.Module, _args: Any, output: Any) -> None:
            if self._armed:
                self._steps[-1].states[layer_id] = layer_state(output, layer_id)

        return hook

    def _reset_capture(self) -> None:
        """Forget what was captured and capture from the next step on."""
        if not hasattr(self, "_layer_ids"):
            raise RuntimeError("call _setup_hidden_states_capture first")
        self._steps = []
        self._armed = True

    def _get_captured_states(self) -> dict[str, list[torch.Tensor]] | None:
        """Return and forget the captured states, and stop capturing.

        Returns:
            Per request id, one tensor ``[sequence, hidden]`` per layer id in the order
            asked, on the CPU; None on ranks that do not capture.
        """
        steps, self._steps, self._armed = self._steps, [], False
        if get_tp_group().rank_in_group != 0:
            return None
        parts: dict[str, dict[int, list[tuple[int, torch.Tensor]]]] = {}
        for rows, states in steps:
            for request_id, position, begin, end in rows:
                per_layer = parts.setdefault(request_id, {})
                for layer_id, state in states.items():
                    piece = (position, state[begin:end])
                    per_layer.setdefault(layer_id, []).append(piece)
        captured: dict[str, list[torch.Tensor]] = {}
        for request_id, per_layer in parts.items():
            joined = {
                layer_id: join_rows(request_id, pieces)
                for layer_id, pieces in per_layer.items()
            }
            captured[request_id] = [joined[layer_id] for layer_id in self._layer_ids]
        return captured

    def _kv_cache_budget(self, fraction: float) -> int:
        """Return the bytes this worker may spend on its key/value cache.

        Args:
            fraction: share of the free device memory; a CPU worker has a budget of its
                own (``VLLM_CPU_KVCACHE_SPACE``) and ignores it.
        """
        worker: Any = self
        device = worker.model_runner.device
        if device.type == "cpu":
            return int(worker.cache_config.cpu_kvcache_space_bytes or 0)
        free, _total = torch.cuda.mem_get_info(device)
        return int(free * fraction)

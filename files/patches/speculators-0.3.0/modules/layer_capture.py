# SPDX-License-Identifier: Apache-2.0
"""Worker extension that captures hidden states with forward hooks.

The model's own forward runs untouched: a hook on each target decoder layer adds
the layer's update to its residual and copies the sum into a slab of shared memory, on a
stream of its own beside the layers that follow. Rows are attributed to requests by the
batch layout of the step they were computed in, never by a running offset, so order,
chunked prefill and pre-emption cannot mix sequences.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing import current_process, parent_process
from threading import Thread
from typing import Any

import torch
from vllm.config import CompilationMode
from vllm.distributed import get_pp_group, get_tp_group
from vllm.model_executor.models.interfaces import supports_multimodal
from vllm.v1.outputs import ModelRunnerOutput

from .handover import SUM, HandoverProbe
from .slabs import Captured, Rows, Slabs

__all__ = ["LayerCapture"]

log = logging.getLogger(__name__)

# Steps whose rows may still be on their way: one runs, one waits for it. Were copies slower than steps and more were
# let out, they would take every slab, and the driver would wait for a free one for ever.
AWAY = 2
# Where vLLM's text models keep their decoder layers.
PLACES = (
    "model.layers",
    "transformer.h",
    "transformer.blocks",
    "model.decoder.layers",
    "gpt_neox.layers",
)
# Tokens of the run in which is found out what the layers hand over.
TRIAL_TOKENS = 16


def _end_with(parent: int) -> None:
    """End this process when its parent has, however that ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


# vLLM's worker waits for the end of a pipe whose other end a forked worker holds as well, and would outlive a killed
# driver with its memory and its locks. The kernel's own signal would come when the thread ends that built the engine.
# This module is first imported while a worker is set up, before the model is loaded.
if current_process().name.startswith("VllmWorker") and (driver := parent_process()):
    Thread(target=_end_with, args=(driver.pid,), daemon=True, name="end with the driver").start()


@dataclass
class Step:
    """One execution of the model whose rows are on their way into a slab."""

    rows: list[Rows]
    # Sources of copies under way: their memory must not be used again before.
    states: list[torch.Tensor]
    home: torch.cuda.Event | None = None


def language_model_of(model: torch.nn.Module) -> torch.nn.Module:
    """Return the language model of a multimodal wrapper, or the model itself."""
    # vLLM answers supports_multimodal() by interface, get_language_model() by module.
    found: torch.nn.Module = model.get_language_model() if supports_multimodal(model) else model
    return found


def decoder_layers(model: torch.nn.Module) -> torch.nn.ModuleList:
    """Return the decoder layers of a target model, also inside a multimodal wrapper.

    Raises:
        ValueError: the model keeps its decoder layers where vLLM's text models do not.
    """
    language_model = language_model_of(model)
    for path in PLACES:
        layers: Any = language_model
        for name in path.split("."):
            layers = getattr(layers, name, None)
        if isinstance(layers, torch.nn.ModuleList) and len(layers) > 0:
            return layers
    raise ValueError(
        f"{type(model).__name__}: no decoder layers at the known places of its "
        f"language model ({type(language_model).__name__}); hidden states of this "
        "architecture cannot be captured"
    )


def layer_state(output: Any, layer_id: int, handover: str) -> torch.Tensor:
    """Return the state after decoder layer ``layer_id``.

    Args:
        output: ``(hidden, residual)`` or one tensor, each ``[tokens, hidden]``.
        layer_id: the layer, for the message.
        handover: what the pair means, as ``HandoverProbe`` found.

    Returns:
        A tensor ``[tokens, hidden]`` in the model's dtype that no later layer writes
        to (vLLM's fused norms work in place on both).
    """
    if isinstance(output, torch.Tensor):
        return output.clone()
    if isinstance(output, tuple) and len(output) == 2 and isinstance(output[0], torch.Tensor):
        hidden, residual = output
        if handover != SUM:
            return hidden.clone()
        if isinstance(residual, torch.Tensor) and residual.shape == hidden.shape:
            return hidden + residual
    raise TypeError(
        f"decoder layer {layer_id} returned {type(output).__name__}, expected a tensor or (hidden, residual)"
    )


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
        self._slabs: Slabs | None = None
        self._slab = 0
        self._steps: deque[Step] = deque()
        self._armed = False
        self._stream: torch.cuda.Stream | None = None
        on_cuda = worker.model_runner.device.type == "cuda"
        if on_cuda:
            # The next step is prepared while this one runs: vLLM then waits before it reuses what it copies from.
            worker.model_runner.prepare_inputs_event = torch.Event()
        # Every rank takes part: the ranks talk to each other when the model runs.
        with HandoverProbe(language_model_of(worker.model_runner.model), layers, set(layer_ids)) as probe:
            # No step may be larger than what the engine has memory for.
            tokens = min(TRIAL_TOKENS, config.scheduler_config.max_num_batched_tokens)
            worker.model_runner._dummy_run(tokens)  # noqa: SLF001 - how vLLM itself warms up
        self._handover = probe.found
        if get_tp_group().rank_in_group != 0:
            return
        if on_cuda:
            self._stream = torch.cuda.Stream(worker.model_runner.device)
        layers[0].register_forward_pre_hook(self._begin_step)
        for slot, layer_id in enumerate(sorted(set(layer_ids))):
            layers[layer_id].register_forward_hook(self._keep_layer(layer_id, slot))

    def _map_slabs(self, slabs: Slabs) -> None:
        """Let captured rows go to ``slabs`` from now on."""
        self._slabs = slabs
        self._pinned: set[int] = set()

    def _begin_step(self, _layer: torch.nn.Module, _args: Any) -> None:
        if not self._armed:
            return
        if self._slabs is None:
            raise RuntimeError("call _map_slabs first")
        if any(step.rows[0].slab == self._slab for step in self._steps):
            raise RuntimeError(f"slab {self._slab} holds rows that nobody asked for")
        if self._stream is not None and self._slab not in self._pinned:
            self._pin(self._slabs, self._slab)
        worker: Any = self
        runner = worker.model_runner
        batch = runner.input_batch
        count = batch.num_reqs
        bounds = runner.query_start_loc.np[: count + 1].tolist()
        if bounds[-1] > self._slabs.tokens:
            raise RuntimeError(f"a step of {bounds[-1]} tokens, a slab holds {self._slabs.tokens}")
        computed = batch.num_computed_tokens_cpu[:count].tolist()
        rows = [Rows(batch.req_ids[i], self._slab, computed[i], bounds[i], bounds[i + 1]) for i in range(count)]
        self._steps.append(Step(rows, []))

    def _pin(self, slabs: Slabs, slab: int) -> None:
        """Page-lock a slab, without which copies from the device would wait for each other."""
        self._pinned.add(slab)
        address = slabs.rows(slab, 0, 0, 1).data_ptr()
        error = int(torch.cuda.cudart().cudaHostRegister(address, slabs.slab_nbytes, 0))
        if error:
            log.warning("slab %d cannot be page-locked (CUDA error %d): copies are slower", slab, error)

    def _keep_layer(self, layer_id: int, slot: int) -> Any:
        def hook(_layer: torch.nn.Module, _args: Any, output: Any) -> None:
            if not self._armed or self._slabs is None:
                return
            step = self._steps[-1]
            used = step.rows[-1].end
            state = layer_state(output, layer_id, self._handover[layer_id])[:used]
            home = self._slabs.rows(self._slab, slot, 0, used)
            if self._stream is None:
                home.copy_(state)
                return
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                home.copy_(state, non_blocking=True)
            step.states.append(state)

        return hook

    def _reset_capture(self) -> None:
        """Forget what was captured and capture from the next step on, into the first slab."""
        if not hasattr(self, "_slabs"):
            raise RuntimeError("call _setup_hidden_states_capture first")
        if self._stream is not None:
            self._stream.synchronize()
        self._steps.clear()
        self._slab = 0
        self._armed = True

    def _capture_step(self, scheduler_output: Any, slab: int) -> tuple[Any, Captured]:
        """Run one step into ``slab``.

        Returns:
            The step's output, and the rows that came home since the last call: those of
            the last two steps may come later. A step without tokens waits for all.
        """
        worker: Any = self
        self._slab = slab
        output = worker.execute_model(scheduler_output)
        if output is None:
            output = self._unsampled()
        return output, self._home(away=AWAY if scheduler_output.total_num_scheduled_tokens else 0)

    def _unsampled(self) -> ModelRunnerOutput:
        """Close a step without sampling: the scheduler gets some token, 0, for every prompt that ends with it.

        Nobody wants these tokens, and to sample is to wait for the device, which would then idle while the next step
        is prepared.
        """
        worker: Any = self
        runner = worker.model_runner
        runner.execute_model_state = None
        batch = runner.input_batch
        unfinished = runner.discard_request_mask.np[: batch.num_reqs].tolist()
        return ModelRunnerOutput(
            req_ids=batch.req_ids.copy(),
            req_id_to_index=batch.req_id_to_index.copy(),
            sampled_token_ids=[[] if more else [0] for more in unfinished],
        )

    def _get_captured_states(self) -> Captured | None:
        """Wait for the rows captured so far and say where they lie; None on ranks that do not capture."""
        if get_tp_group().rank_in_group != 0:
            return None
        return self._home(away=0)

    def _home(self, away: int) -> Captured:
        """Take the steps whose rows are home, and wait until no more than ``away`` are not."""
        if self._stream is not None and self._steps and self._steps[-1].home is None:
            self._steps[-1].home = self._stream.record_event()
        rows: list[Rows] = []
        while self._steps:
            home = self._steps[0].home
            if home is not None and not home.query():
                if len(self._steps) <= away:
                    break
                home.synchronize()
            rows += self._steps.popleft().rows
        return Captured(rows)

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

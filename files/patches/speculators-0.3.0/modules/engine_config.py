# SPDX-License-Identifier: Apache-2.0
"""The engine's configuration as vLLM derives it from a model, for the settings of the generator.

vLLM derives some fields from a checkpoint where it parses a user's arguments, and
nowhere else: the window of a model whose layers all slide, for one. A configuration
that is put together by hand lacks them, and the model then computes something else
without a word.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from vllm.engine.arg_utils import EngineArgs

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["as_vllm_derives", "differences"]

# Names of every modality that a wrapper may know; vLLM then builds no tower.
NO_MEDIA = dict.fromkeys(("image", "video", "audio", "vision_chunk"), 0)
# Made anew for every configuration.
IDENTITIES = ("instance_id",)


def as_vllm_derives(config: VllmConfig) -> VllmConfig:
    """Return the configuration that vLLM makes from the settings in ``config``.

    Raises:
        ValueError: vLLM decided otherwise about a setting that the capture relies on.
    """
    model, scheduler, cache = config.model_config, config.scheduler_config, config.cache_config
    parallel = config.parallel_config
    derived = EngineArgs(
        model=model.model,
        tokenizer=model.tokenizer,
        trust_remote_code=model.trust_remote_code,
        max_model_len=model.max_model_len,
        enforce_eager=True,
        limit_mm_per_prompt=NO_MEDIA,
        block_size=cache.block_size,
        gpu_memory_utilization=cache.gpu_memory_utilization,
        num_gpu_blocks_override=cache.num_gpu_blocks_override,
        enable_prefix_caching=False,
        tensor_parallel_size=parallel.tensor_parallel_size,
        worker_extension_cls=parallel.worker_extension_cls,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        long_prefill_token_threshold=scheduler.long_prefill_token_threshold,
        async_scheduling=False,
    ).create_engine_config()
    for name, wanted, found in (
        ("enforce_eager", True, derived.model_config.enforce_eager),
        ("enable_prefix_caching", False, derived.cache_config.enable_prefix_caching),
        ("async_scheduling", False, derived.scheduler_config.async_scheduling),
        ("max_model_len", model.max_model_len, derived.model_config.max_model_len),
        ("max_num_seqs", scheduler.max_num_seqs, derived.scheduler_config.max_num_seqs),
        ("max_num_batched_tokens", scheduler.max_num_batched_tokens, derived.scheduler_config.max_num_batched_tokens),
    ):
        if bool(found) != wanted if isinstance(wanted, bool) else found != wanted:
            raise ValueError(f"vLLM sets {name} to {found} for {model.model}; hidden states are captured with {wanted}")
    return derived


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Return every field in which two configurations differ, as ``path: ours | theirs``."""
    if dataclasses.is_dataclass(ours) and type(ours) is type(theirs):
        found = []
        for field in dataclasses.fields(ours):
            if field.name not in IDENTITIES:
                pair = (getattr(one, field.name, None) for one in (ours, theirs))
                found += differences(*pair, f"{path}.{field.name}".lstrip("."))
        return found
    return [] if ours == theirs or repr(ours) == repr(theirs) else [f"{path}: {ours!r} | {theirs!r}"]

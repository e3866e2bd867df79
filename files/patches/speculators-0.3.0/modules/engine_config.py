# SPDX-License-Identifier: Apache-2.0
"""The engine's configuration as vLLM derives it from a model, for the settings of the generator.

vLLM derives some fields from a checkpoint where it parses a user's arguments, and
nowhere else: the window of a model whose layers all slide, for one. A configuration
that is put together by hand lacks them, and the model then computes something else
without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.engine.arg_utils import EngineArgs

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["as_vllm_derives"]


def _media_limits(model: Any) -> dict[str, int]:
    """How many items of each modality a prompt may have, as the settings say."""
    limits = model.multimodal_config.limit_per_prompt if model.multimodal_config else {}
    return {name: getattr(option, "count", option) for name, option in limits.items()}


def as_vllm_derives(config: VllmConfig) -> VllmConfig:
    """Return the configuration that vLLM makes from the settings in ``config``.

    Raises:
        ValueError: vLLM decided otherwise about a setting.
    """
    model, scheduler, cache = config.model_config, config.scheduler_config, config.cache_config
    parallel = config.parallel_config
    derived = EngineArgs(
        model=model.model,
        tokenizer=model.tokenizer,
        trust_remote_code=model.trust_remote_code,
        max_model_len=model.max_model_len,
        enforce_eager=model.enforce_eager,
        limit_mm_per_prompt=_media_limits(model),
        block_size=cache.block_size,
        gpu_memory_utilization=cache.gpu_memory_utilization,
        num_gpu_blocks_override=cache.num_gpu_blocks_override,
        enable_prefix_caching=cache.enable_prefix_caching,
        tensor_parallel_size=parallel.tensor_parallel_size,
        worker_extension_cls=parallel.worker_extension_cls,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        long_prefill_token_threshold=scheduler.long_prefill_token_threshold,
        async_scheduling=scheduler.async_scheduling,
    ).create_engine_config()
    for ours, theirs, names in (
        # A folder that holds a draft model would be answered with its target.
        (model, derived.model_config, ("model", "tokenizer", "dtype", "enforce_eager", "max_model_len")),
        (cache, derived.cache_config, ("enable_prefix_caching", "block_size")),
        (
            scheduler,
            derived.scheduler_config,
            ("async_scheduling", "max_num_seqs", "max_num_batched_tokens", "long_prefill_token_threshold"),
        ),
    ):
        for name in names:
            wanted, found = getattr(ours, name), getattr(theirs, name)
            if wanted != found:
                raise ValueError(f"vLLM sets {name} to {found} for {model.model}; the generator asks for {wanted}")
    if derived.speculative_config is not None:
        raise ValueError(f"vLLM speculates for {model.model}: a target model without a draft is needed")
    return derived

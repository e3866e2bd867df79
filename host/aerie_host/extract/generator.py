"""The one factory of the generator of speculators: an extraction and the stage ``truth`` both build theirs here."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Sequences keep their places until the reply to their step is read, and two steps are under way: half of these make
# one, so that samples of 32 tokens fill a step of 8,192. With places for one step alone every second would be empty.
SEQUENCES = 512
# How vLLM says that a model has fewer positions than asked; it goes on to advise what would compute nonsense.
POSITIONS = re.compile(r"max_model_len \(\d+\) is greater than the derived max_model_len \(\w+=(\d+)")


@dataclasses.dataclass(frozen=True)
class EngineLimits:
    """How much the generator takes at once, in tokens where nothing else is said.

    Attributes:
        max_length: the longest sequence.
        step: of one scheduler step, over all sequences; longer sequences are spread over steps.
        sequences: the most sequences in one step.
        piece: of one sequence in one step; 0 leaves it at ``step``.
        cache: size of the key/value cache; 0 leaves it to the memory that is free.

    """

    max_length: int
    step: int
    sequences: int = SEQUENCES
    piece: int = 0
    cache: int = 0


def make_generator(
    model: Path,
    layers: Sequence[int],
    limits: EngineLimits,
    *,
    gpu_memory_utilization: float,
    tensor_parallel_size: int = 1,
    trust_remote_code: bool = False,
) -> Any:
    """Build the generator of a checkpoint for these layers; ``Refusal`` when model, layers and limits do not agree."""
    from speculators.data_generation import vllm_hidden_states_generator as module

    class LimitedGenerator(module.VllmHiddenStatesGenerator):  # type: ignore[misc]
        """The generator with the limits that it is given."""

        def _create_vllm_config(self, **kwargs: Any) -> Any:
            config = super()._create_vllm_config(**kwargs)
            scheduler, cache = config.scheduler_config, config.cache_config
            scheduler.max_num_batched_tokens = limits.step
            scheduler.max_num_seqs = min(limits.sequences, limits.step)
            if limits.piece:
                scheduler.long_prefill_token_threshold = limits.piece
            if limits.cache:
                cache.num_gpu_blocks_override = limits.cache // cache.block_size
            return config

    LimitedGenerator.trust_remote_code = trust_remote_code
    try:
        generator = LimitedGenerator(
            model_path=str(model),
            layer_ids=list(layers),
            # vLLM keeps one position for the token that it samples.
            max_model_len=limits.max_length + 1,
            gpu_memory_utilization=gpu_memory_utilization,
            tensor_parallel_size=tensor_parallel_size,
        )
    except MemoryError as error:
        raise Refusal("memory for the model", error) from error
    except ValueError as error:
        if longest := POSITIONS.search(str(error)):
            raise Refusal(
                "length of samples",
                f"hidden_states_max_length is {limits.max_length}; the model has {longest[1]} positions, and vLLM "
                "keeps one for the token that it samples",
                f"at most {int(longest[1]) - 1}",
                f"set hidden_states_max_length to {int(longest[1]) - 1} or less",
            ) from error
        raise
    if list(generator.layer_ids) != list(layers):
        raise Refusal("layers", f"the generator extracts {list(generator.layer_ids)}", list(layers))
    return generator

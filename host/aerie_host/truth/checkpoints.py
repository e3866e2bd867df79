"""Tiny random checkpoints: of the target model's twin, and of each architecture that a site names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from aerie_host.shared.model_config import read_config
from aerie_host.truth.twin import twin_config
from aerie_host.truth.weights import draw

if TYPE_CHECKING:
    from pathlib import Path

VOCABULARY = 512
LAYERS = 6
HIDDEN = 128
MAX_POSITIONS = 4096
END_OF_SEQUENCE = 1

_SHARED: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 256,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": MAX_POSITIONS,
    "bos_token_id": 2,
    "eos_token_id": END_OF_SEQUENCE,
    "tie_word_embeddings": False,
}


def _llama() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(**_SHARED, num_key_value_heads=2)


def _qwen3() -> Any:
    from transformers import Qwen3Config

    return Qwen3Config(**_SHARED, num_key_value_heads=2, head_dim=32)


def _deepseek_v3() -> Any:
    from transformers import DeepseekV3Config

    config = DeepseekV3Config(
        **_SHARED,
        num_key_value_heads=4,
        moe_intermediate_size=64,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        kv_lora_rank=64,
        q_lora_rank=64,
        qk_nope_head_dim=32,
        qk_rope_head_dim=32,
        v_head_dim=32,
    )
    # vLLM routes by the checkpoint's word; Transformers knows this method only.
    config.topk_method = "noaux_tc"
    config.scoring_func = "sigmoid"
    return config


def _gemma3() -> Any:
    from transformers import Gemma3TextConfig

    shared = {**_SHARED, "tie_word_embeddings": True}
    layer_types = ["full_attention" if layer % 3 == 2 else "sliding_attention" for layer in range(LAYERS)]
    return Gemma3TextConfig(
        **shared, num_key_value_heads=2, head_dim=32, sliding_window=16, layer_types=layer_types,
        query_pre_attn_scalar=32,
    )  # fmt: skip


def _mistral() -> Any:
    from transformers import MistralConfig

    # Every layer slides; the window is shorter than most sequences of the cases.
    return MistralConfig(**_SHARED, num_key_value_heads=2, sliding_window=64)


def _stablelm() -> Any:
    from transformers import StableLmConfig

    # Its layers return a complete state, and beside it a residual that is used up.
    return StableLmConfig(**_SHARED, num_key_value_heads=2)


# The name of each architecture in the inventory, and the configuration of its decoder.
ARCHITECTURES = {
    "llama": _llama,
    "qwen3": _qwen3,
    "deepseek_v3": _deepseek_v3,
    "kimi_k25": _deepseek_v3,
    "gemma3": _gemma3,
    "mistral": _mistral,
    "stablelm": _stablelm,
}

# The one wrapper that Transformers does not know without code from the checkpoint.
WRAPPER = "KimiK25ForConditionalGeneration"
# vLLM asks a Kimi-K2.5 checkpoint for its image processor even when only text is read.
_MEDIA_PROCESSOR = '''"""Stands in for the image processor of a checkpoint that is only asked for text."""

from transformers import BaseImageProcessor


class TextOnly(BaseImageProcessor):
    num_frames_per_chunk = 1

    def media_tokens_calculator(self, media):
        return 1
'''


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({str(token): token for token in range(VOCABULARY)}, unk_token="0"))  # noqa: S106 - a token of text
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token=str(END_OF_SEQUENCE), bos_token="2")  # noqa: S106 - a token of text


def build(architecture: str, folder: Path) -> tuple[Path, Path]:
    """Write a checkpoint of the architecture, bfloat16, the same bytes each time.

    Returns:
        The folder for vLLM and the folder for Transformers: two only where a wrapper is around the decoder that
        Transformers does not know without code from the checkpoint.

    Raises:
        KeyError: the architecture is none of ``ARCHITECTURES``.

    """
    return _write(ARCHITECTURES[architecture](), folder, wrapped=architecture == "kimi_k25")


def build_twin(target: Path, folder: Path) -> tuple[Path, Path]:
    """Write the twin of the target model in the folder ``target``, bfloat16, the same bytes each time.

    Returns:
        The folder for vLLM and the folder for Transformers, as ``build`` does.

    Raises:
        Refusal: no twin can be made of this model.

    """
    config = read_config(target)
    return _write(twin_config(config), folder, wrapped=WRAPPER in (config.get("architectures") or []))


def _write(config: Any, folder: Path, wrapped: bool) -> tuple[Path, Path]:
    """Write a checkpoint of a configuration, and the wrapper around it where one is wanted; both folders."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_config(config)
    draw(model)
    decoder = folder / "decoder"
    model.to(torch.bfloat16).save_pretrained(decoder)
    _tokenizer().save_pretrained(decoder)
    if not wrapped:
        return decoder, decoder
    wrapper = folder / "wrapper"
    _wrap(decoder, wrapper)
    return wrapper, decoder


def _wrap(decoder: Path, wrapper: Path) -> None:
    """Write the decoder's weights again as the language model of a Kimi-K2.5 checkpoint without a vision tower."""
    from safetensors.torch import load_file, save_file

    wrapper.mkdir()
    weights = load_file(decoder / "model.safetensors")
    renamed = {f"language_model.{name}": values for name, values in weights.items()}
    save_file(renamed, wrapper / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": [WRAPPER],
        "model_type": "kimi_k25",
        "text_config": json.loads((decoder / "config.json").read_text(encoding="utf-8")),
        "media_placeholder_token_id": VOCABULARY - 1,
        "torch_dtype": "bfloat16",
    }
    (wrapper / "config.json").write_text(json.dumps(config), encoding="utf-8")
    processor = {"auto_map": {"AutoImageProcessor": "media.TextOnly"}, "image_processor_type": "TextOnly"}
    (wrapper / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")
    (wrapper / "media.py").write_text(_MEDIA_PROCESSOR, encoding="utf-8")
    _tokenizer().save_pretrained(wrapper)

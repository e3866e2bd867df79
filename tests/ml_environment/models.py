# ruff: noqa: RUF001 - the bars of one family of models are what is tested
"""Tiny checkpoints and tokenizers, made on the spot."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATES = Path(__file__).parents[1] / "chat_templates"
# One name a line would hide which bars belong to which family: the texts stand in the templates as well.
SPECIALS = {
    "chatml": ["<|im_start|>", "<|im_end|>"],
    "marked": ["<|im_start|>", "<|im_end|>"],
    "empty_think": ["<|im_start|>", "<|im_end|>"],
    "reasoning": ["<|im_start|>", "<|im_end|>"],
    "llama3": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "kimi_k2": ["<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"],
    "deepseek": ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"],
    "alternating": ["<s>", "</s>"],
    "deepseek_switch": ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"],
    "kimi_k2_thinking": ["<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"],
    "unmaskable": ["<|im_end|>"],
}
TEXT = [
    "Where is Rome? In Italy, in the middle.",
    "And Oslo? In Norway: in the south.",
    "caf\u00e9 \U0001f389 user assistant",
]


def fast_tokenizer(family: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with the family's special tokens and chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=SPECIALS[family], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=SPECIALS[family][-1])
    made.add_special_tokens({"additional_special_tokens": SPECIALS[family]})
    made.chat_template = (TEMPLATES / f"{family}.jinja").read_text()
    return made


def slow_tokenizer(family: str) -> ByT5Tokenizer:
    """A tokenizer of bytes that, like Kimi-K2's, gives no offsets."""
    made = ByT5Tokenizer(additional_special_tokens=SPECIALS[family], extra_ids=0)
    made.chat_template = (TEMPLATES / f"{family}.jinja").read_text()
    return made


def checkpoint(folder: Path, layers: int = 6, family: str = "chatml", tied: bool = False, shard: str = "5GB") -> Path:
    """A random Llama in bfloat16 with a tokenizer, as a checkpoint folder.

    ``tied``: the head is the embedding, and no weight of its own; ``shard``: the most that one file of weights holds.
    """
    tokenizer = fast_tokenizer(family)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, max_shard_size=shard)
    tokenizer.save_pretrained(folder)
    return folder

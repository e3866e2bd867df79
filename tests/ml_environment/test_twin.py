"""The twin of a target model keeps what decides how states are computed, and cuts what decides how much."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="runs in the ML environment: tools/host_tests.sh")

from aerie_host.shared.model_config import decoder_values  # noqa: E402  (found only now)
from aerie_host.shared.refusal import Refusal  # noqa: E402  (found only now)
from aerie_host.truth import twin  # noqa: E402  (found only now)
from aerie_host.truth.checkpoints import build_twin  # noqa: E402  (found only now)

SHARED = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000}
MISTRAL = {
    **SHARED, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "num_key_value_heads": 8,
    "intermediate_size": 14336, "sliding_window": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
}  # fmt: skip
GRANITE = {
    **SHARED, "model_type": "granite", "architectures": ["GraniteForCausalLM"], "num_key_value_heads": 8,
    "intermediate_size": 12800, "residual_multiplier": 0.22, "embedding_multiplier": 12.0, "logits_scaling": 16.0,
    "attention_multiplier": 0.0078125,
}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 10240, "sliding_window": 1024,
        "vocab_size": 262208, "query_pre_attn_scalar": 256, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
}  # fmt: skip
KIMI = {
    "model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {
        "model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
        "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64, "intermediate_size": 18432,
        "moe_intermediate_size": 2048, "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "kv_lora_rank": 512, "q_lora_rank": 1536,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 163840,
        "routed_scaling_factor": 2.827, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": True,
        "rope_theta": 50000.0, "quantization_config": {"quant_method": "compressed-tensors"},
    },
}  # fmt: skip
MIXTRAL = {
    **SHARED, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_key_value_heads": 8,
    "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None,
}  # fmt: skip
MODELS = {"mistral": MISTRAL, "granite": GRANITE, "gemma3": GEMMA3, "kimi_k25": KIMI, "mixtral": MIXTRAL}
# All that a twin may change.
CUT = {
    *twin.WIDTHS, *twin.HIDDEN_NAMES, *twin.LAYER_NAMES, *twin.HEAD_NAMES, *twin.KEY_NAMES, *twin.EXPERT_NAMES,
    *twin.CHOSEN_NAMES, *twin.WINDOWS, *twin.PER_LAYER, "head_dim", "n_group", "topk_group", "vocab_size",
    "quantization_config", "model_type", "architectures",
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_what_decides_how_states_are_computed_is_kept(name):
    target = decoder_values(MODELS[name])
    derived = twin.twin_config(MODELS[name]).to_dict()
    assert {key: derived[key] for key in target if key not in CUT} == {
        key: value for key, value in target.items() if key not in CUT
    }
    assert "quantization_config" not in derived


def test_a_window_stays_one_and_is_shorter_than_the_cases():
    assert twin.twin_config(MISTRAL).sliding_window == twin.WINDOW
    assert twin.twin_config(MIXTRAL).sliding_window is None


def test_every_kind_of_layer_is_there_and_a_change_between_them():
    kinds = twin.twin_config(GEMMA3).layer_types
    assert {"sliding_attention", "full_attention"} == set(kinds)
    assert kinds[-2:] == ["full_attention", "sliding_attention"]


def test_experts_stay_routed_as_the_target_routes():
    derived = twin.twin_config(KIMI)
    assert type(derived).__name__ == "DeepseekV3Config"
    assert (derived.n_routed_experts, derived.num_experts_per_tok, derived.first_k_dense_replace) == (8, 2, 1)
    assert (derived.scoring_func, derived.topk_method, derived.routed_scaling_factor) == ("sigmoid", "noaux_tc", 2.827)


def test_a_model_that_transformers_does_not_know_is_refused_by_name():
    with pytest.raises(Refusal) as refused:
        twin.twin_config({"model_type": "unheard_of", "architectures": ["UnheardOfForCausalLM"]})
    assert "unheard_of" in refused.value.found
    assert "truth_architectures" in refused.value.remedy


def test_a_folder_without_a_configuration_is_refused(tmp_path):
    with pytest.raises(Refusal, match="hidden_states_model_path"):
        build_twin(tmp_path, tmp_path)


@pytest.mark.parametrize("name", ["mistral", "kimi_k25"])
def test_a_twin_is_the_same_bytes_each_time(name, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps(MODELS[name]))
    weights = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        checkpoint, decoder = build_twin(target, folder)
        weights.append((decoder / "model.safetensors").read_bytes())
        assert (checkpoint != decoder) == (name == "kimi_k25")
    assert weights[0] == weights[1]


def test_rounding_chooses_no_expert(tmp_path):
    """Two forwards that round differently send every token to the same experts, by a wide margin."""
    from transformers import AutoModelForCausalLM

    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps(MIXTRAL))
    _, decoder = build_twin(target, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(decoder, dtype=torch.float32)
    with torch.inference_mode():
        routed = model(torch.arange(3, 200)[None], output_router_logits=True).router_logits
    for logits in routed:
        best = logits.softmax(-1).topk(3).values
        assert bool((best[:, 1] > 1.05 * best[:, 2]).all())

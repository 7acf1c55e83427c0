"""Folders of random language models, each compared with `transformers`: a prompt in two parts, then token by token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnefc

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

WORDS = 96
COMMON = {
    "vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SLIDING, FULL = "sliding_attention", "full_attention"
WINDOW = {"sliding_window": 4, "layer_types": [SLIDING, FULL]}
LLAMA3 = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32, "rope_theta": 10000.0,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0}
LONGROPE = {
    "rope_type": "longrope", "short_factor": [1.0 + n / 8 for n in range(8)], "rope_theta": 10000.0,
    "long_factor": [2.0 + n for n in range(8)], "original_max_position_embeddings": 16, "factor": 4.0,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1}

LATENT = {
    "num_key_value_heads": 4, "kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10,
    "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5,
}  # fmt: skip
HYBRID = {
    "layer_types": ["linear_attention", FULL], "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 1,
    "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 8, "shared_intermediate_size": 48,
    "embedding_multiplier": 6.0, "residual_multiplier": 0.3, "attention_multiplier": 0.2, "logits_scaling": 4.0,
}  # fmt: skip

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": False}),
    "llama-llama3": ("Llama", {"rope_parameters": LLAMA3, "attention_bias": True, "mlp_bias": True}),
    "llama-yarn": ("Llama", {"rope_parameters": YARN}),
    "llama-linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 1000.0}}),
    "mistral": ("Mistral", {"sliding_window": 4, "head_dim": 32}),
    "smollm3": ("SmolLM3", {"no_rope_layers": [1, 0], "no_rope_layer_interval": 2}),
    "granite": ("Granite", {
        "embedding_multiplier": 6.0, "residual_multiplier": 0.3, "attention_multiplier": 0.2, "logits_scaling": 4.0,
    }),
    "olmo2": ("Olmo2", {}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen2moe": ("Qwen2Moe", {**EXPERTS, "shared_expert_intermediate_size": 64, "norm_topk_prob": False}),
    "qwen3moe": ("Qwen3Moe", {**EXPERTS, "norm_topk_prob": True}),
    "gemma": ("Gemma", {"head_dim": 32}),
    "gemma2": ("Gemma2", {
        **WINDOW, "head_dim": 16, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
    }),
    "gemma3": ("Gemma3Text", {**WINDOW, "head_dim": 16, "query_pre_attn_scalar": 16}),
    "gemma3n": ("Gemma3nText", {
        "sliding_window": 4, "layer_types": [SLIDING, FULL, SLIDING, FULL], "num_hidden_layers": 4, "head_dim": 16,
        "num_kv_shared_layers": 2, "activation_sparsity_pattern": [0.9, 0.0, 0.5, 0.0], "altup_num_inputs": 3,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": WORDS - 6, "laurel_rank": 12,
        "altup_active_idx": 1,
    }),
    "phi2": ("Phi", {"num_key_value_heads": 4, "partial_rotary_factor": 0.5}),
    "phi3": ("Phi3", {"sliding_window": 5}),
    "phi3-longrope": ("Phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 16}),
    "glm4": ("Glm4", {"head_dim": 16, "partial_rotary_factor": 0.5, "attention_bias": True}),
    "cohere2": ("Cohere2", {**WINDOW, "logit_scale": 0.5}),
    "exaone4": ("Exaone4", {**WINDOW}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "granitemoe": ("GraniteMoe", {"num_local_experts": 4, "num_experts_per_tok": 2, "attention_multiplier": 0.2}),
    "gpt-oss": ("GptOss", {
        **WINDOW, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2,
        "rope_parameters": YARN | {"truncate": False, "beta_fast": 32.0, "beta_slow": 1.0},
    }),
    "deepseek2": ("DeepseekV2", {
        **LATENT, "q_lora_rank": None, "topk_method": "group_limited_greedy", "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0,
        },
    }),
    "deepseek3": ("DeepseekV3", {
        **LATENT, "q_lora_rank": 24, "norm_topk_prob": True,
        "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 0.5, "beta_fast": 32.0, "beta_slow": 1.0},
    }),
    "lfm2": ("Lfm2", {"layer_types": ["conv", FULL], "conv_L_cache": 3, "conv_bias": True}),
    "mamba2": ("Mamba2", {
        "num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 2, "expand": 2, "conv_kernel": 4,
        "chunk_size": 8, "hidden_size": 64,
    }),
    "granitehybrid": ("GraniteMoeHybrid", {
        **HYBRID, "num_local_experts": 4, "num_experts_per_tok": 2, "position_embedding_type": "rope",
    }),
    "granitehybrid-dense": ("GraniteMoeHybrid", {**HYBRID, "num_local_experts": 0}),
}  # fmt: skip
TOKENS = np.random.default_rng(5).integers(3, WORDS, 24)


def saved(name: str, folder: Path, **options: Any) -> Any:
    """A model with random weights, also of norms and biases, as a folder."""
    kind, own = CASES[name]
    torch.manual_seed(3)
    config = getattr(transformers, f"{kind}Config")(**COMMON | own | {"attn_implementation": "eager"})
    model_class = f"{kind.removesuffix('Text')}ForCausalLM"
    model = getattr(transformers, model_class)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.2 if parameter.ndim > 1 else 0.3
            parameter.add_(torch.randn_like(parameter) * scale)
        for name, buffer in model.named_buffers():
            if name.endswith("correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * 0.3)
    model.save_pretrained(folder, **options)
    return model


def logits_of(model: Any, tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(model(torch.tensor(tokens[None]), use_cache=False).logits[0].float())


def compare(folder: Path, wanted: np.ndarray, **options: Any) -> None:
    """Compares the last logits after parts of the tokens: two parts of a prompt, then single tokens. Caches of windows
    are rings."""
    bound = 1e-4 * np.abs(wanted).max()
    with nnefc.compile(folder, strict=True, kv_cache="f32", rewind=2, **options).load(threads=1) as model:
        for seen, end in ((0, 7), (7, 18), *((n, n + 1) for n in range(18, len(wanted)))):
            (found,) = np.asarray(model(TOKENS[None, seen:end]))
            assert np.abs(found - wanted[end - 1]).max() < bound, (seen, end)


FAST = ("llama-llama3", "gemma2", "deepseek3", "granitehybrid")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in CASES])
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path)
    compare(tmp_path, logits_of(model, TOKENS), context=32)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma3n", "mamba2"])
def test_logits_of_all_tokens_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path)
    wanted = logits_of(model, TOKENS)
    artifact = nnefc.compile(tmp_path, strict=True, kv_cache="f32", context=32, rewind=0, all_logits=True)
    with artifact.load(threads=1) as compiled:
        for seen, end in ((0, 7), (7, len(wanted))):
            found = np.asarray(compiled(TOKENS[None, seen:end], np.arange(end - seen)))
            assert np.abs(found - wanted[seen:end]).max() < 1e-4 * np.abs(wanted).max()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deepseek3", "gemma3", "lfm2", "mamba2"])
def test_sequences_side_by_side_are_those_alone(name: str, tmp_path: Path) -> None:
    """Two of three sequences in a run, of several lengths; one that begins again has forgotten what it had."""
    model = saved(name, tmp_path)
    texts = {0: list(TOKENS[:9]), 2: list(TOKENS[9:14])}
    artifact = nnefc.compile(tmp_path, strict=True, kv_cache="f32", context=32, sequences=3, rewind=0)
    with artifact.load(threads=1) as compiled:

        def after(parts: dict[int, list[int]]) -> None:
            width = max(map(len, parts.values()))
            tokens = np.full((len(parts), width), -1)
            for row, part in enumerate(parts.values()):
                tokens[row, : len(part)] = part
            found = np.asarray(compiled(tokens, np.array(list(parts))))
            for number, row in zip(parts, found, strict=True):
                wanted = logits_of(model, np.array(texts[number]))
                assert np.abs(row - wanted[-1]).max() < 1e-4 * np.abs(wanted).max(), (number, parts)

        after(texts)
        parts = {2: [5, 9, 11, 3], 0: [7]}
        texts = {number: texts[number] + part for number, part in parts.items()}
        after(parts)
        counts = compiled.read_state("P")
        counts[2] = 0
        compiled.write_state("P", counts)
        texts[2] = [8, 4]
        after({2: [8, 4]})
        assert compiled.can_rewind == (name == "deepseek3")

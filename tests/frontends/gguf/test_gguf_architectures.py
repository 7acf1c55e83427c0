"""Architectures of GGUF that no other test has, written from random models of `transformers`, which they are compared
with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import nnefc

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

TOKENS = np.random.default_rng(6).integers(3, 64, 24)
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
INNER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "self_attn.sinks": "attn_sinks",
    "self_attn.o_proj": "attn_output", "mlp.router": "ffn_gate_inp",
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
}  # fmt: skip


def gpt_oss_tensors(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By the names of GGUF; of the experts' first layers gates and factors lie apart, and outputs are rows."""
    made = {}
    for name, value in state.items():
        stem, _, end = name.rpartition(".")
        if not name.startswith("model.layers."):
            made[f"{OUTER[stem]}.{end}"] = value
            continue
        n, _, own = name.removeprefix("model.layers.").partition(".")
        if own == "self_attn.sinks":
            made[f"blk.{n}.attn_sinks.weight"] = value
        elif own.startswith("mlp.experts."):
            part, end = own.removeprefix("mlp.experts."), "weight"
            if part.endswith("_bias"):
                part, end = part.removesuffix("_bias"), "bias"
            value = value.swapaxes(1, 2) if end == "weight" else value
            parts = {"down": value} if part == "down_proj" else {"gate": value[:, ::2], "up": value[:, 1::2]}
            made |= {f"blk.{n}.ffn_{key}_exps.{end}": each for key, each in parts.items()}
        else:
            inner, _, end = own.rpartition(".")
            made[f"blk.{n}.{INNER[inner]}.{end}"] = value
    return made


@pytest.mark.slow
def test_gpt_oss(tmp_path: Path) -> None:
    """Sinks, experts with clamped gates and biases, windows, positions scaled by YaRN."""
    torch.manual_seed(4)
    config = transformers.GptOssConfig(
        vocab_size=64, hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, head_dim=16,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, sliding_window=4,
        attn_implementation="eager", max_position_embeddings=64, pad_token_id=0, rms_norm_eps=1e-5, rope_parameters={
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0,
            "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True,
        },
    )  # fmt: skip
    model = transformers.GptOssForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3 + (parameter.ndim == 1))
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "gpt-oss")
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_expert_count(4)
    writer.add_expert_used_count(2)
    writer.add_sliding_window(4)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)
    writer.add_rope_scaling_orig_ctx_len(16)
    for name, value in gpt_oss_tensors({name: np.asarray(value) for name, value in model.state_dict().items()}).items():
        writer.add_tensor(name, np.ascontiguousarray(value, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with torch.no_grad():
        wanted = np.asarray(model(torch.tensor(TOKENS[None]), use_cache=False).logits[0])
    options: Any = {"strict": True, "context": 32, "kv_cache": "f32", "rewind": 0}
    with nnefc.compile(tmp_path / "m.gguf", **options).load(threads=1) as compiled:
        for seen, end in ((0, 7), (7, 22), (22, 23), (23, 24)):
            (found,) = np.asarray(compiled(TOKENS[None, seen:end]))
            assert np.abs(found - wanted[end - 1]).max() < 1e-4 * np.abs(wanted).max()

"""Architectures with other blocks than attention: a file of GGUF and a folder of the same numbers are one network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from small_folders import safetensors

import nnefc
from nnefc.frontends.decoder import BuiltModel, Session
from nnefc.frontends.gguf.container import read_container
from nnefc.frontends.gguf.frontend import read as read_file
from nnefc.frontends.huggingface.frontend import read as read_folder

SIZE, WORDS, INNER, HEADS = 32, 40, 48, 4
RNG = np.random.default_rng(12)
CONFIG = {
    "vocab_size": WORDS, "hidden_size": SIZE, "intermediate_size": INNER, "num_hidden_layers": 2, "hidden_act": "silu",
    "num_attention_heads": HEADS, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "norm_eps": 1e-5,
    "layer_norm_epsilon": 1e-5,
}  # fmt: skip
KEYS = {
    "block_count": 2, "embedding_length": SIZE, "attention.head_count": HEADS, "context_length": 64,
    "attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip

Names = dict[str, tuple[str, tuple[int, ...]]]
"""What folders and files call a tensor, and its shape."""


def of_layer(n: int, names: Names, prefix: str = "model.") -> Names:
    return {f"{prefix}layers.{n}.{name}": (f"blk.{n}.{own}", shape) for name, (own, shape) in names.items()}


def outer(norm: str = "model.norm", own_norm: str = "output_norm", stem: str = "model.embed_tokens") -> Names:
    return {f"{stem}.weight": ("token_embd.weight", (WORDS, SIZE)), f"{norm}.weight": (f"{own_norm}.weight", (SIZE,))}


def weights(names: dict[str, tuple[str, tuple[int, ...]]]) -> Names:
    return {f"{name}.weight": (f"{own}.weight", shape) for name, (own, shape) in names.items()}


FEED = weights({
    "mlp.gate_proj": ("ffn_gate", (INNER, SIZE)), "mlp.up_proj": ("ffn_up", (INNER, SIZE)),
    "mlp.down_proj": ("ffn_down", (SIZE, INNER)),
})  # fmt: skip
NORMS = weights({"input_layernorm": ("attn_norm", (SIZE,)), "post_attention_layernorm": ("ffn_norm", (SIZE,))})
ATTENTION = {
    f"self_attn.{part}_proj.weight": (f"attn_{own}.weight", (SIZE, SIZE))
    for part, own in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output"))
}
LATENT = weights({
    "self_attn.q_a_proj": ("attn_q_a", (20, SIZE)), "self_attn.q_a_layernorm": ("attn_q_a_norm", (20,)),
    "self_attn.q_b_proj": ("attn_q_b", (HEADS * 20, 20)),
    "self_attn.kv_a_proj_with_mqa": ("attn_kv_a_mqa", (16 + 8, SIZE)),
    "self_attn.kv_a_layernorm": ("attn_kv_a_norm", (16,)),
    "self_attn.kv_b_proj": ("attn_kv_b", (HEADS * (12 + 10), 16)),
    "self_attn.o_proj": ("attn_output", (SIZE, HEADS * 10)),
})  # fmt: skip
EXPERTS = {
    **weights({"mlp.gate": ("ffn_gate_inp", (8, SIZE)), **{
        f"mlp.shared_experts.{part}_proj": (f"ffn_{part}_shexp", (SIZE, 16) if part == "down" else (16, SIZE))
        for part in ("gate", "up", "down")
    }}),
    "mlp.gate.e_score_correction_bias": ("exp_probs_b.bias", (8,)),
}  # fmt: skip
STATE = {
    **weights({"in_proj": ("ssm_in", (64 + 64 + 2 * 32 + 4, SIZE)), "out_proj": ("ssm_out", (SIZE, 64)),
               "norm": ("ssm_norm", (64,)), "conv1d": ("ssm_conv1d", (128, 1, 4))}),
    "conv1d.bias": ("ssm_conv1d.bias", (128,)), "dt_bias": ("ssm_dt.bias", (4,)), "A_log": ("ssm_a", (4,)),
    "D": ("ssm_d", (4,)),
}  # fmt: skip
CONVOLUTION = weights({
    "operator_norm": ("attn_norm", (SIZE,)), "ffn_norm": ("ffn_norm", (SIZE,)),
    "conv.conv": ("shortconv.conv", (SIZE, 1, 3)),
    "conv.in_proj": ("shortconv.in_proj", (3 * SIZE, SIZE)), "conv.out_proj": ("shortconv.out_proj", (SIZE, SIZE)),
    "feed_forward.w1": ("ffn_gate", (INNER, SIZE)), "feed_forward.w3": ("ffn_up", (INNER, SIZE)),
    "feed_forward.w2": ("ffn_down", (SIZE, INNER)),
})  # fmt: skip
HEADED = {name: each for name, each in CONVOLUTION.items() if "conv" not in name} | {
    **{f"self_attn.{part}_proj.weight": (f"attn_{part}.weight", (SIZE, SIZE)) for part in "qkv"},
    "self_attn.out_proj.weight": ("attn_output.weight", (SIZE, SIZE)),
    "self_attn.q_layernorm.weight": ("attn_q_norm.weight", (8,)),
    "self_attn.k_layernorm.weight": ("attn_k_norm.weight", (8,)),
}  # fmt: skip
SHARED = weights({
    "shared_mlp.input_linear": ("ffn_up", (2 * INNER, SIZE)), "shared_mlp.output_linear": ("ffn_down", (SIZE, INNER)),
})  # fmt: skip
ROWS = {
    **weights({
        "input_layernorm": ("attn_norm", (SIZE,)), "post_attention_layernorm": ("post_attention_norm", (SIZE,)),
        "pre_feedforward_layernorm": ("ffn_norm", (SIZE,)), "post_feedforward_layernorm": ("post_ffw_norm", (SIZE,)),
        "self_attn.q_norm": ("attn_q_norm", (8,)), "self_attn.k_norm": ("attn_k_norm", (8,)),
        "per_layer_input_gate": ("inp_gate", (6, SIZE)), "per_layer_projection": ("proj", (SIZE, 6)),
        "post_per_layer_input_norm": ("post_norm", (SIZE,)), "altup.correction_coefs": ("altup_correct_coef", (3, 3)),
        "altup.prediction_coefs": ("altup_predict_coef", (9, 3)), "altup.modality_router": ("altup_router", (3, SIZE)),
        "altup.router_norm": ("altup_router_norm", (SIZE,)), "laurel.linear_left": ("laurel_l", (5, SIZE)),
        "laurel.linear_right": ("laurel_r", (SIZE, 5)), "laurel.post_laurel_norm": ("laurel_post_norm", (SIZE,)),
    }),
    "altup.correct_output_scale": ("altup_correct_scale.weight", (SIZE,)),
}  # fmt: skip
OF_STATE = {"ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 16, "ssm.time_step_rank": 4}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], Names]] = {
    "deepseek2": (
        {
            "model_type": "deepseek_v3", "q_lora_rank": 20, "kv_lora_rank": 16, "qk_nope_head_dim": 12,
            "qk_rope_head_dim": 8, "v_head_dim": 10, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4,
            "topk_group": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5,
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0,
                             "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1},
        },
        {
            "attention.head_count_kv": 1, "attention.key_length": 24, "attention.value_length": 16,
            "attention.key_length_mla": 20, "attention.value_length_mla": 10, "attention.q_lora_rank": 20,
            "attention.kv_lora_rank": 16, "rope.dimension_count": 8, "expert_count": 8, "expert_used_count": 2,
            "expert_group_count": 4, "expert_group_used_count": 2, "expert_gating_func": 2, "expert_weights_norm": True,
            "expert_weights_scale": 2.5, "leading_dense_block_count": 1, "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16,
            "rope.scaling.yarn_log_multiplier": 0.1,
        },
        outer() | {"lm_head.weight": ("output.weight", (WORDS, SIZE))} | of_layer(0, NORMS | LATENT | FEED)
        | of_layer(1, NORMS | LATENT | EXPERTS),
    ),
    "lfm2": (
        {"model_type": "lfm2", "num_key_value_heads": 4, "layer_types": ["conv", "full_attention"], "conv_L_cache": 3,
         "rope_theta": 1000000.0},
        {"attention.head_count_kv": [0, 4], "shortconv.l_cache": 3, "rope.freq_base": 1000000.0},
        outer("model.embedding_norm", "token_embd_norm") | of_layer(0, CONVOLUTION) | of_layer(1, HEADED),
    ),
    "gemma3n": (
        {"model_type": "gemma3n_text", "num_key_value_heads": 4, "layer_types": ["full_attention"] * 2, "head_dim": 8,
         "sliding_window": 4, "num_kv_shared_layers": 1, "altup_num_inputs": 3, "hidden_size_per_layer_input": 6,
         "vocab_size_per_layer_input": WORDS, "hidden_act": "gelu_pytorch_tanh", "rope_theta": 1000000.0},
        {"attention.head_count_kv": 4, "attention.sliding_window": 4, "attention.sliding_window_pattern": [False] * 2,
         "attention.shared_kv_layers": 1, "altup.num_inputs": 3, "embedding_length_per_layer_input": 6,
         "rope.freq_base": 1000000.0, "activation_sparsity_scale": [float("-inf")] * 2},
        outer() | weights({
            "model.embed_tokens_per_layer": ("per_layer_token_embd", (WORDS, 12)),
            "model.per_layer_model_projection": ("per_layer_model_proj", (12, SIZE)),
            "model.per_layer_projection_norm": ("per_layer_proj_norm", (6,)),
        }) | of_layer(0, ROWS | ATTENTION | FEED) | of_layer(1, ROWS | ATTENTION | FEED),
    ),
    "mamba2": (
        {"model_type": "mamba2", "num_heads": 4, "head_dim": 16, "state_size": 16, "n_groups": 2, "conv_kernel": 4},
        {**OF_STATE, "ssm.group_count": 2},
        outer("backbone.norm_f", stem="backbone.embeddings") | {
            name: each for n in range(2) for name, each in of_layer(n, {
                **{f"mixer.{part}": own for part, own in STATE.items()}, "norm.weight": ("attn_norm.weight", (SIZE,)),
            }, "backbone.").items()
        },
    ),
    "granitehybrid": (
        {"model_type": "granitemoehybrid", "num_key_value_heads": 4, "layer_types": ["mamba", "attention"],
         "mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_d_state": 16, "shared_intermediate_size": INNER,
         "num_local_experts": 0, "attention_multiplier": 0.25, "logits_scaling": 4.0},
        {"attention.head_count_kv": [0, 4], **OF_STATE, "ssm.group_count": 2, "attention.scale": 0.25,
         "logit_scale": 4.0},
        outer() | of_layer(0, NORMS | SHARED | {f"mamba.{part}": own for part, own in STATE.items()})
        | of_layer(1, NORMS | SHARED | ATTENTION),
    ),
}  # fmt: skip


def in_file(own: str, value: np.ndarray) -> dict[str, np.ndarray]:
    """What converters make of a folder's tensor."""
    value = value.squeeze(1) if value.ndim == 3 else value
    if own.endswith("ssm_a"):
        return {own: -np.exp(value)[:, None]}
    if own.endswith("ssm_d"):
        return {own: value[:, None]}
    if own.endswith("ssm_norm.weight"):
        return {own: value.reshape(2, -1)}
    if own.endswith("attn_kv_b.weight"):  # keys transposed
        apart = value.reshape(HEADS, 22, 16)
        return {
            own.replace("kv_b", "k_b"): np.ascontiguousarray(apart[:, :12].swapaxes(1, 2)),
            own.replace("kv_b", "v_b"): np.ascontiguousarray(apart[:, 12:]),
        }
    if own.endswith("ffn_up.weight") and len(value) == 2 * INNER:
        return {own.replace("_up", "_gate"): value[:INNER], own: value[INNER:]}
    return {own: value}


def written(name: str, folder: Path) -> tuple[Path, Path]:
    """A folder, and a file of the same numbers."""
    config, keys, names = CASES[name]
    tensors = {label: (RNG.standard_normal(shape) * 0.3).astype(np.float32) for label, (_, shape) in names.items()}
    stored = dict(tensors)
    file, experts = {}, {}
    for label, value in tensors.items():
        file |= in_file(names[label][0], value)
    if name == "deepseek2":
        for part, shape in (("gate", (16, SIZE)), ("up", (16, SIZE)), ("down", (SIZE, 16))):
            experts[part] = (RNG.standard_normal((8, *shape)) * 0.3).astype(np.float32)
            stored |= {f"model.layers.1.mlp.experts.{n}.{part}_proj.weight": experts[part][n] for n in range(8)}
            file[f"blk.1.ffn_{part}_exps.weight"] = experts[part]
    if name == "gemma3n":
        for part, own in (("projections", "proj"), ("unembed_projections", "unembd_proj")):
            both = (RNG.standard_normal((2, SIZE, SIZE)) * 0.3).astype(np.float32)
            stored |= {f"model.altup_{part}.{n}.weight": both[n] for n in range(2)}
            file[f"altup_{own}.weight"] = both
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    content = {label: ("F32", value.shape, value.tobytes()) for label, value in stored.items()}
    (folder / "model.safetensors").write_bytes(safetensors(content))
    writer = gguf.GGUFWriter(folder / "m.gguf", name)
    for key, value in (KEYS | keys).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
               list: writer.add_array}[type(value)]  # fmt: skip
        add(f"{name}.{key}", value)
    for label, value in file.items():
        writer.add_tensor(label, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder, folder / "m.gguf"


@pytest.mark.parametrize("name", CASES)
def test_a_file_and_a_folder_are_one_network(name: str, tmp_path: Path) -> None:
    folder, file = written(name, tmp_path)
    found: list[BuiltModel] = [
        source.files(Session(32, 2)).model for source in (read_folder(folder), read_file(file, read_container(file)))
    ]
    assert found[0].text == found[1].text
    assert found[0].tensors.keys() == found[1].tensors.keys()
    for label, tensor in found[0].tensors.items():
        np.testing.assert_allclose(
            tensor.value_as_floats(), found[1].tensors[label].value_as_floats(), rtol=1e-6, err_msg=label
        )


@pytest.mark.parametrize(
    ("name", "change", "what"),
    [
        ("lfm2", {"attention.head_count_kv": 4}, "'lfm2.attention.head_count_kv' is no list of 2 numbers"),
        ("lfm2", {"attention.head_count_kv": [0, 4, 4]}, "'lfm2.attention.head_count_kv' is no list of 2 numbers"),
        ("deepseek2", {"rope.dimension_count": 24}, "'deepseek2.rope.dimension_count' is 24 of 20 elements"),
        ("deepseek2", {"expert_gating_func": 7}, "'deepseek2.expert_gating_func' is 7"),
        ("deepseek2", {"expert_group_count": 3}, "'deepseek2.expert_group_count' is 3"),
        ("mamba2", {"ssm.time_step_rank": 5}, "'mamba2.ssm.inner_size' is 64 for 5 heads"),
        ("mamba2", {"ssm.group_count": 3}, "4 heads cannot share 3 groups"),
    ],
)
def test_wrong_numbers_are_refused_with_the_key(name: str, change: dict[str, Any], what: str, tmp_path: Path) -> None:
    _, file = written(name, tmp_path)
    container = read_container(file)
    metadata = dict(container.metadata) | {f"{name}.{key}": value for key, value in change.items()}
    changed = type(container)(container.path, metadata, container.tensors)
    with pytest.raises(nnefc.CompileError) as found:
        read_file(file, changed).files(Session(32))
    assert what in str(found.value)

"""Renames tensors of Hugging Face's folders to the names that the builder of decoders knows, those of GGUF."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nnefc.frontends.decoder import StoredTensor, Weights
from nnefc.frontends.decoder.weights import float_tensor, shown, stacked
from nnefc.frontends.huggingface.expert_tensors import joined_experts
from nnefc.support.diagnostics import CompileError

__all__ = ["renamed"]

_WHOLE = {
    "embed_tokens": "token_embd",
    "embeddings": "token_embd",
    "embedding": "token_embd",
    "norm_f": "output_norm",
    "embedding_norm": "output_norm",
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
    "norm": "output_norm",
    "final_layernorm": "output_norm",
    "lm_head": "output",
}
_BLOCKS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.dense": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "mlp.router": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.router": "ffn_gate_inp",
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "experts.gate_proj": "ffn_gate_exps",
    "experts.up_proj": "ffn_up_exps",
    "experts.down_proj": "ffn_down_exps",
    "choice": "exp_probs_b",
    "sinks": "attn_sinks",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "conv.conv": "shortconv.conv",
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
    "mixer.in_proj": "ssm_in",
    "mixer.conv1d": "ssm_conv1d",
    "mixer.norm": "ssm_norm",
    "mixer.out_proj": "ssm_out",
    "mixer.dt": "ssm_dt",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "altup.correction_coefs": "altup_correct_coef",
    "altup.prediction_coefs": "altup_predict_coef",
    "altup.modality_router": "altup_router",
    "altup.router_norm": "altup_router_norm",
    "altup.scale": "altup_correct_scale",
    "laurel.linear_left": "laurel_l",
    "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm",
}
_MIXTURE = {"shared_mlp.input_linear": "ffn_up_shexp", "shared_mlp.output_linear": "ffn_down_shexp"}
_DENSE = {"shared_mlp.input_linear": "ffn_up", "shared_mlp.output_linear": "ffn_down"}
"""Names of the same feed-forward layer in layers with experts and in layers without them."""
_BARE = {
    "mlp.gate.e_score_correction_bias": "choice.bias",
    "self_attn.sinks": "sinks.weight",
    "mixer.dt_bias": "mixer.dt.bias",
    "altup.correct_output_scale": "altup.scale.weight",
}
"""Names that end in neither `weight` nor `bias`, and names that do."""
_BEFORE = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
_BEHIND = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
_AROUND = _BEHIND | {"input_layernorm": "attn_norm", "pre_feedforward_layernorm": "ffn_norm"}
_NORMS: dict[str, dict[str, str]] = {
    "olmo2": _BEHIND,
    "exaone4": _BEHIND,
    "gemma2": _AROUND,
    "gemma3": _AROUND,
    "gemma3n": _AROUND,
    "gemma-embedding": _AROUND,
    "lfm2": {"operator_norm": "attn_norm", "ffn_norm": "ffn_norm"},
    "mamba2": {"norm": "attn_norm"},
    "glm4": _BEFORE | {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
}
"""Names of the norms of layers by architecture; others have `_BEFORE`."""

_LAYER = re.compile(r"(?:model\.|backbone\.)?layers\.(\d{1,4})\.(.+)\.(weight|bias)")
_LAYER_BARE = re.compile(r"((?:model\.|backbone\.)?layers\.\d{1,4}\.)(.+)")
_OUTER = re.compile(r"(?:model\.|backbone\.)?(\w+)\.(weight|bias)")
_STATE = re.compile(r"(?:model\.|backbone\.)?layers\.(\d{1,4})\.mixer\.(A_log|D)")
_NEAR_ONE = ("gemma", "gemma2", "gemma3", "gemma-embedding")
"""Architectures whose folders have the weights of norms less one."""
_PROJECTION = re.compile(r"(?:model\.)?altup_(unembed_)?projections\.(\d{1,2})\.weight")
_IGNORED = re.compile(r".*\.rotary_emb\.inv_freq")  # follows from the configuration


def renamed(source: str, architecture: str, tensors: Mapping[str, StoredTensor], is_tied: bool) -> Weights:
    """Returns the tensors under the names of GGUF; those that are not known keep theirs.

    Args:
        source: the folder, for messages.
        architecture: as the builder calls it.
        tensors: of the folder.
        is_tied: whether logits are products with the embeddings, whatever the folder has besides.
    """
    given = joined_experts(source, _with_projections(tensors), is_interleaved=architecture == "gpt-oss")
    has_experts = any(".experts." in label for label in given)
    names = _BLOCKS | (_MIXTURE if has_experts else _DENSE) | _NORMS.get(architecture, _BEFORE)
    made: dict[str, StoredTensor] = {}
    spelled: dict[str, str] = {}
    for label, tensor in given.items():
        if _IGNORED.fullmatch(label):
            continue
        own = _name(label, names)
        if own in made:
            raise CompileError(f"'{source}': the tensors '{shown(spelled[own])}' and '{shown(label)}' are one")
        if own.startswith("output.") and is_tied:
            continue
        if architecture in _NEAR_ONE and "norm" in own:
            tensor = replace(tensor, added=1.0)
        made[own] = _decays(tensor) if own.endswith(".ssm_a") else tensor
        spelled[own] = label
    return Weights(source, made, original_name=lambda own: spelled.get(own) or _original_name(own, names))


def _decays(tensor: StoredTensor) -> StoredTensor:
    """Returns what files of GGUF have for the logarithms of decays."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float_tensor(-np.exp(tensor.value_as_floats()))


def _with_projections(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Returns tensors with the projections into the rows of positions as one, and those out of them by their names."""
    made, parts = dict(tensors), {}
    for label, tensor in tensors.items():
        if found := _PROJECTION.fullmatch(label):
            del made[label]
            if found[1]:
                made[f"altup_unembd_proj.{int(found[2])}.weight"] = tensor
            else:
                parts[int(found[2])] = tensor
    if (
        parts
        and {len(tensor.shape) for tensor in parts.values()} == {2}
        and len({t.shape for t in parts.values()}) == 1
    ):
        made["altup_proj.weight"] = stacked([parts[n] for n in sorted(parts)])
    return made


_BLOCK = re.compile(r"blk\.(\d+)\.([\w.]+)\.(weight|bias)")


def _original_name(own: str, names: Mapping[str, str]) -> str:
    """Returns what a folder would call a tensor that it does not have."""
    if block := _BLOCK.fullmatch(own):
        found = next((name for name, other in names.items() if other == block[2]), block[2])
        return f"model.layers.{block[1]}.{found}.{block[3]}"
    name, _, end = own.partition(".")
    found = next((each for each, other in _WHOLE.items() if other == name), name)
    return f"model.{found}.{end}"


def _name(label: str, names: Mapping[str, str]) -> str:
    common = label.replace(".mamba.", ".mixer.", 1)
    if state := _STATE.fullmatch(common):
        return f"blk.{int(state[1])}.{'ssm_a' if state[2] == 'A_log' else 'ssm_d'}"
    if (bare := _LAYER_BARE.fullmatch(common)) and bare[2] in _BARE:
        common = bare[1] + _BARE[bare[2]]
    if (layer := _LAYER.fullmatch(common)) and layer[2] in names:
        return f"blk.{int(layer[1])}.{names[layer[2]]}.{layer[3]}"
    if (outer := _OUTER.fullmatch(common)) and outer[1] in _WHOLE:
        return f"{_WHOLE[outer[1]]}.{outer[2]}"
    return label

"""Renames tensors of Hugging Face's folders to the names that the builder of decoders knows, those of GGUF."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from nnefc.frontends.decoder import StoredTensor, Weights
from nnefc.frontends.decoder.weights import shown, stacked
from nnefc.support.diagnostics import CompileError

__all__ = ["renamed"]

_WHOLE = {
    "embed_tokens": "token_embd",
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
}
_BEFORE = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
_BEHIND = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
_AROUND = _BEHIND | {"input_layernorm": "attn_norm", "pre_feedforward_layernorm": "ffn_norm"}
_NORMS: dict[str, dict[str, str]] = {
    "olmo2": _BEHIND,
    "exaone4": _BEHIND,
    "gemma2": _AROUND,
    "gemma3": _AROUND,
    "gemma-embedding": _AROUND,
    "glm4": _BEFORE | {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
}
"""What architectures call norms of layers; `_BEFORE` for others."""

_LAYER = re.compile(r"(?:model\.)?layers\.(\d{1,4})\.(.+)\.(weight|bias)")
_OUTER = re.compile(r"(?:model\.)?(\w+)\.(weight|bias)")
_EXPERT = re.compile(r"(?:model\.)?layers\.(\d{1,4})\.mlp\.experts\.(\d{1,5})\.(gate|up|down)_proj\.weight")
_IGNORED = re.compile(r".*\.rotary_emb\.inv_freq")  # follows from the configuration


def renamed(source: str, architecture: str, tensors: Mapping[str, StoredTensor], is_tied: bool) -> Weights:
    """Returns the tensors under the names of GGUF; those that are not known keep theirs.

    Args:
        source: the folder, for messages.
        architecture: as the builder calls it.
        tensors: of the folder.
        is_tied: whether logits are products with the embeddings, whatever the folder has besides.
    """
    names = _BLOCKS | _NORMS.get(architecture, _BEFORE)
    made: dict[str, StoredTensor] = {}
    spelled: dict[str, str] = {}
    experts: dict[str, dict[int, StoredTensor]] = {}
    for label, tensor in tensors.items():
        if _IGNORED.fullmatch(label):
            continue
        if expert := _EXPERT.fullmatch(label):
            own = f"blk.{expert[1]}.ffn_{expert[3]}_exps.weight"
            experts.setdefault(own, {})[int(expert[2])] = tensor
            spelled.setdefault(own, label)
            continue
        own = _name(label, names)
        if own in made:
            raise CompileError(f"'{source}': the tensors '{shown(spelled[own])}' and '{shown(label)}' are one")
        if own.startswith("output.") and is_tied:
            continue
        made[own] = replace(tensor, added=1.0) if architecture.startswith("gemma") and "norm" in own else tensor
        spelled[own] = label
    for own, parts in experts.items():
        if sorted(parts) != list(range(len(parts))) or len({part.shape for part in parts.values()}) > 1:
            raise CompileError(
                f"'{source}': the experts of '{shown(spelled[own])}' are not all there, or of several shapes"
            )
        made[own] = stacked([parts[n] for n in range(len(parts))])
    return Weights(source, made, original_name=lambda own: spelled.get(own) or _original_name(own, names))


_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def _original_name(own: str, names: Mapping[str, str]) -> str:
    """Returns what a folder would call a tensor that it does not have."""
    if block := _BLOCK.fullmatch(own):
        found = next((name for name, other in names.items() if other == block[2]), block[2])
        return f"model.layers.{block[1]}.{found}.{block[3]}"
    name, _, end = own.partition(".")
    found = next((each for each, other in _WHOLE.items() if other == name), name)
    return f"model.{found}.{end}"


def _name(label: str, names: Mapping[str, str]) -> str:
    if (layer := _LAYER.fullmatch(label)) and layer[2] in names:
        return f"blk.{int(layer[1])}.{names[layer[2]]}.{layer[3]}"
    if (outer := _OUTER.fullmatch(label)) and outer[1] in _WHOLE:
        return f"{_WHOLE[outer[1]]}.{outer[2]}"
    return label

"""Reads encoders of Hugging Face's folders: hyperparameters, and tensors under the names of GGUF."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnefc.frontends.decoder import Hyperparameters, StoredTensor, Weights, architecture_named
from nnefc.frontends.decoder.rotary import RotaryScaling
from nnefc.frontends.decoder.weights import shown
from nnefc.frontends.huggingface.keys import Keys
from nnefc.support.diagnostics import CompileError

__all__ = ["encoder_hyperparameters", "renamed_encoder"]

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "tract_core_gelu_approx",
    "gelu_fast": "tract_core_gelu_approx",
    "gelu_pytorch_tanh": "tract_core_gelu_approx",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "swiglu": "silu",
}
_FULL, _SLIDING = "full_attention", "sliding_attention"
_PADDED = ("roberta", "xlm-roberta", "camembert")
"""Model types whose positions begin behind the number of the padding token."""


def encoder_hyperparameters(config: Mapping[str, Any], architecture: str, path: Path) -> Hyperparameters:
    """Returns what a configuration says of its encoder; older ones of Nomic have the names of GPT-2.

    Raises:
        CompileError: a key is missing, is not as it must be, or asks for what is not supported.
    """
    keys, own = Keys(config, path), architecture_named(architecture)
    _refuse_variants(keys)
    size, heads = _integer(keys, "hidden_size", "n_embd"), _integer(keys, "num_attention_heads", "n_head")
    if not heads:
        raise keys.refuse("num_attention_heads", "is 0")
    layers, head_size = _integer(keys, "num_hidden_layers", "n_layer"), keys.integer("head_dim", 0) or size // heads
    whole = keys.inside("rope_parameters")
    local = None if whole is None else whole.inside(_SLIDING)
    whole = None if whole is None else whole.inside(_FULL) or whole
    base = 0.0 if whole is None else whole.real("rope_theta")
    local_base = 0.0 if local is None else local.real("rope_theta")
    fraction = keys.real("rotary_emb_fraction", 1.0)
    return Hyperparameters(
        size=size,
        layers=layers,
        heads=heads,
        key_heads=heads,
        head_size=head_size,
        vocabulary=keys.integer("vocab_size"),
        rotated=int(head_size * fraction),
        epsilon=_epsilon(keys),
        context=_integer(keys, "max_position_embeddings", "n_positions") - _first_position(config),
        base=base or keys.real("rotary_emb_base") or keys.real("global_rope_theta") or own.base,
        local_base=local_base or keys.real("local_rope_theta") or None,
        scaling=_scaling(keys, whole),
        window=keys.integer("local_attention", 0),
        window_pattern=_window_pattern(keys, layers),
        activation=_activation(keys),
    )


def _refuse_variants(keys: Keys) -> None:
    """Refuses what changes results and is not supported."""
    if keys.get("position_embedding_type") not in (None, "absolute", "rotary"):
        raise keys.refuse("position_embedding_type", f"is {shown(keys.get('position_embedding_type'))}: not supported")
    for key in ("prenorm", "rotary_emb_interleaved", "is_decoder", "use_rms_norm", "parallel_block"):
        if keys.get(key):
            raise keys.refuse(key, "is true, which is not supported")


def _integer(keys: Keys, *names: str) -> int:
    return keys.integer(next((name for name in names if keys.get(name) is not None), names[0]))


def _epsilon(keys: Keys) -> float:
    for key in ("layer_norm_eps", "layer_norm_epsilon", "norm_eps"):
        if keys.get(key) is not None:
            return keys.real(key)
    raise keys.refuse("layer_norm_eps", "is missing")


def _activation(keys: Keys) -> str | None:
    found = keys.get("hidden_activation", "hidden_act", "activation_function")
    if found is not None and (not isinstance(found, str) or found not in _ACTIVATIONS):
        raise keys.refuse("hidden_act", f"is '{shown(found)}', which is not supported")
    return None if found is None else _ACTIVATIONS[found]


def _scaling(keys: Keys, whole: Keys | None) -> RotaryScaling:
    kind = None if whole is None else whole.get("rope_type", "type")
    if kind not in (None, "default"):
        raise CompileError(f"positions of encoders scaled as '{shown(kind)}' are not supported")
    factor = keys.real("rotary_scaling_factor")
    return RotaryScaling("dynamic", factor, keys.integer("max_trained_positions", 2048)) if factor else RotaryScaling()


def _window_pattern(keys: Keys, layers: int) -> tuple[bool, ...] | None:
    kinds = keys.listed("layer_types", layers)
    if kinds is not None:
        return tuple(kind == _SLIDING for kind in kinds)
    every = keys.integer("global_attn_every_n_layers", 0)
    return tuple(bool(n % every) for n in range(layers)) if every else None


def _first_position(config: Mapping[str, Any]) -> int:
    if config.get("model_type") not in _PADDED:
        return 0
    padding = config.get("pad_token_id", 1)
    return padding + 1 if isinstance(padding, int) and 0 <= padding < 1 << 16 else 2


# Tensors

_OUTER = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.tok_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "embeddings.norm": "token_embd_norm",
    "emb_ln": "token_embd_norm",
    "final_norm": "output_norm",
}
_HEADS = {
    "pooler.dense": "cls",
    "classifier.dense": "cls",
    "head.dense": "cls",
    "head.norm": "cls.norm",
    "classifier.out_proj": "cls.output",
    "classifier": "cls.output",
}
_INNER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output",
    "attn.Wo": "attn_output",
    "attn_norm": "attn_norm",
    "mlp.fc11": "ffn_up",
    "mlp.fc12": "ffn_gate",
    "mlp.fc2": "ffn_down",
    "mlp.Wi": "ffn_up",
    "mlp.Wo": "ffn_down",
    "mlp_norm": "ffn_norm",
    "norm1": "attn_output_norm",
    "norm2": "layer_output_norm",
}
"""The names of BERT, of Nomic and of ModernBERT."""

_PREFIX = re.compile(r"(?:bert|roberta|model|nomic_bert)\.(?=.)")
_LAYER = re.compile(r"(?:encoder\.)?layers?\.(\d{1,4})\.(.+)\.(weight|bias)")
_OLD_ENDS = {".gamma": ".weight", ".beta": ".bias"}
_LANGUAGE_HEAD = re.compile(
    r"(?:cls|lm_head|decoder|predictions|mlm|loss)\..*|embeddings\.(?:position|token_type)_ids|.*inv_freq"
)
"""Tensors that are ignored: heads that predict masked words, and tables that follow from the configuration."""


def renamed_encoder(
    source: str, config: Mapping[str, Any], tensors: Mapping[str, StoredTensor], has_scores: bool
) -> Weights:
    """Returns the tensors under the names of GGUF; those that are not known keep theirs.

    Args:
        source: the folder, for messages.
        config: of the folder.
        tensors: of the folder.
        has_scores: whether the head of a classifier is part of the network; else heads are left out.

    Raises:
        CompileError: two tensors are one.
    """
    made: dict[str, StoredTensor] = {}
    spelled: dict[str, str] = {}
    for label, tensor in tensors.items():
        short = _PREFIX.sub("", label, count=1) if _PREFIX.match(label) else label
        for old, new in _OLD_ENDS.items():
            short = short.removesuffix(old) + new if short.endswith(old) else short
        if _LANGUAGE_HEAD.fullmatch(short):
            continue
        stem, _, end = short.rpartition(".")
        if stem in _HEADS and not has_scores:
            continue
        own = f"{(_OUTER | _HEADS)[stem]}.{end}" if stem in _OUTER or stem in _HEADS else _inner(short)
        if own in made:
            raise CompileError(f"'{source}': the tensors '{shown(spelled[own])}' and '{shown(label)}' are one")
        made[own], spelled[own] = tensor, label
    first, positions = _first_position(config), made.get("position_embd.weight")
    if first and positions is not None and len(positions.shape) == 2 and positions.shape[0] > first:
        made["position_embd.weight"] = positions.rows(np.arange(first, positions.shape[0]))
    return Weights(source, made, original_name=lambda own: spelled.get(own, own))


def _inner(label: str) -> str:
    """Returns the name of a layer's tensor."""
    layer = _LAYER.fullmatch(label)
    return f"blk.{int(layer[1])}.{_INNER[layer[2]]}.{layer[3]}" if layer and layer[2] in _INNER else label

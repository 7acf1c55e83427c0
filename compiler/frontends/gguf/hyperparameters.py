"""Reads the hyperparameters of a decoder or an encoder from the metadata of a file of GGUF."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.decoder import (
    ARCHITECTURES,
    ENCODERS,
    Architecture,
    Hyperparameters,
    Routing,
    Weights,
    architecture_named,
)
from nnefc.frontends.decoder.rotary import RotaryScaling
from nnefc.frontends.decoder.weights import shown
from nnefc.frontends.gguf.container import Container
from nnefc.frontends.gguf.keys import Keys
from nnefc.frontends.gguf.mixers import state_space_decoder, with_mixers, with_rows_of_positions
from nnefc.operators.base import Array
from nnefc.support.diagnostics import CompileError

__all__ = ["architecture_of", "hyperparameters_of"]

_FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")


def architecture_of(container: Container) -> str:
    """Returns the name of the architecture.

    Raises:
        CompileError: it is not known.
    """
    name = container.metadata.get("general.architecture")
    if name not in ARCHITECTURES and name not in ENCODERS:
        raise CompileError(
            f"'{container.path}': the architecture '{shown(name)}' is not supported",
            hint=f"supported are {', '.join([*ARCHITECTURES, *ENCODERS])}",
        )
    return str(name)


def hyperparameters_of(container: Container, architecture: str, weights: Weights) -> Hyperparameters:
    """Returns what a file says of its network; tensors with factors of positions are taken out of the weights.

    Raises:
        CompileError: a key is missing, or is not as it must be.
    """
    keys = Keys(container, architecture)
    embeddings = weights.tensors.get("token_embd.weight")
    if embeddings is None or len(embeddings.shape) != 2:
        raise CompileError(f"'{container.path}' has no matrix 'token_embd.weight'", hint="the file is incomplete")
    own, layers = architecture_named(architecture), keys.integer("block_count")
    if architecture == "mamba2":
        return state_space_decoder(keys, layers, embeddings.shape[0])
    given = _with_attention(keys, own, architecture, weights)
    if own.has_updates:
        return with_rows_of_positions(keys, given, weights)
    return with_mixers(keys, given, own.mixers) if own.mixers else given


def _with_attention(keys: Keys, own: Architecture, architecture: str, weights: Weights) -> Hyperparameters:
    """Returns what is common to all decoders and encoders with attention."""
    size, heads = keys.integer("embedding_length"), keys.integer("attention.head_count")
    if not heads:
        raise keys.refuse("attention.head_count", "is 0")
    layers, key_heads = keys.integer("block_count"), keys.used("attention.head_count_kv", heads)
    head_size = keys.integer("attention.key_length", size // heads)
    if keys.integer("attention.value_length", head_size) != head_size and own.mixers != "latent":
        raise keys.refuse("attention.value_length", "differs from 'attention.key_length', which is not supported")
    return Hyperparameters(
        size=size,
        layers=layers,
        heads=heads,
        key_heads=key_heads,
        head_size=head_size,
        vocabulary=weights.tensors["token_embd.weight"].shape[0],
        rotated=keys.integer("rope.dimension_count", head_size),
        epsilon=keys.real(
            "attention.layer_norm_epsilon" if own.is_centered else "attention.layer_norm_rms_epsilon", 1e-5
        ),
        context=keys.integer("context_length", 0),
        base=keys.real("rope.freq_base", own.base),
        local_base=keys.real("rope.freq_base_swa", 0.0) or None,
        scaling=_scaling(keys, weights),
        pair_factors=_pair_factors(weights),
        window=keys.integer("attention.sliding_window", 0),
        window_pattern=_window_pattern(keys, layers, own.whole_first),
        attention_scale=keys.real("attention.scale", 0.0),
        attention_cap=keys.real("attn_logit_softcapping", 0.0),
        logit_scale=_logit_scale(keys, architecture),
        logit_cap=keys.real("final_logit_softcapping", 0.0),
        embedding_scale=keys.real("embedding_scale", 0.0),
        residual_scale=keys.real("residual_scale", 0.0),
        routing=_routing(keys, layers, weights),
    )


def _routing(keys: Keys, layers: int, weights: Weights) -> Routing | None:
    """Returns how experts are chosen; None without them."""
    count, used = keys.integer("expert_count", 0), keys.integer("expert_used_count", 0)
    if not count or not used:
        return None
    if used > count:
        raise keys.refuse("expert_used_count", f"is {used} of {count} experts")
    gate = keys.integer("expert_gating_func", _SOFTMAX)
    if gate not in _SCORINGS:
        raise keys.refuse("expert_gating_func", f"is {gate}, which is not supported")
    groups, groups_used = keys.integer("expert_group_count", 1) or 1, keys.integer("expert_group_used_count", 1) or 1
    if groups_used > groups or count % groups:
        raise keys.refuse("expert_group_count", f"is {groups}, of which {groups_used} are used, for {count} experts")
    norm, dense = keys.get("expert_weights_norm"), keys.integer("leading_dense_block_count", 0)
    return Routing(
        used=used,
        layers=tuple(n >= dense for n in range(layers)),
        is_normalized=None if norm is None else bool(norm),
        has_shared=f"blk.{min(dense, layers - 1)}.ffn_up_shexp.weight" in weights,
        scoring=_SCORINGS[gate],
        scale=keys.real("expert_weights_scale", 1.0) or 1.0,
        groups=groups,
        groups_used=groups_used,
        group_terms=2 if _SCORINGS[gate] == "sigmoid" else 1,
    )


_SOFTMAX = 1
_SCORINGS = {0: "softmax", 1: "softmax", 2: "sigmoid"}


def _logit_scale(keys: Keys, architecture: str) -> float:
    """Granite's files have the divisor of logits, others the factor."""
    found = keys.real("logit_scale", 0.0)
    return 1 / found if found and architecture.startswith("granite") else found


def _scaling(keys: Keys, weights: Weights) -> RotaryScaling:
    kind = keys.get("rope.scaling.type") or "none"
    short = long = None
    if all(name in weights for name in _FACTORS):
        kind, short, long = "longrope", *(_taken(weights, name) for name in _FACTORS)
    return RotaryScaling(
        kind=shown(kind),
        factor=keys.real("rope.scaling.factor", 1.0) or 1.0,
        original_context=keys.integer("rope.scaling.original_context_length", 0),
        attention_factor=keys.real("rope.scaling.attn_factor", 0.0) or None,
        options={
            name: keys.real(f"rope.scaling.yarn_{name}", default)
            for name, default in (("beta_fast", 32.0), ("beta_slow", 1.0))
        },
        short_factors=() if short is None else tuple(map(float, short)),
        long_factors=() if long is None else tuple(map(float, long)),
    )


def _pair_factors(weights: Weights) -> tuple[float, ...]:
    """Factors of llama 3, by which the lowest frequencies are divided."""
    found = _taken(weights, "rope_freqs.weight")
    return () if found is None else tuple(map(float, found))


def _taken(weights: Weights, name: str) -> Array | None:
    """Returns the elements of a small tensor that the network itself does not have; it may be there once a layer."""
    found = weights.tensors.pop(name, None)
    if found is None:
        return None
    for other in [each for each in weights.tensors if each.endswith(f".{name}")]:
        del weights.tensors[other]
    value = found.value()
    if not isinstance(value, np.ndarray):
        raise CompileError(f"'{weights.source}': the tensor '{name}' is not of floats")
    return value.reshape(-1)


def _window_pattern(keys: Keys, layers: int, whole_first: bool) -> tuple[bool, ...] | None:
    found = keys.get("attention.sliding_window_pattern")
    if found is None:
        return None
    if isinstance(found, list):
        if len(found) != layers:
            raise keys.refuse("attention.sliding_window_pattern", f"has {len(found)} elements for {layers} layers")
        return tuple(map(bool, found))
    every = keys.integer("attention.sliding_window_pattern")
    return tuple(bool(every and (n + (not whole_first)) % every) for n in range(layers))

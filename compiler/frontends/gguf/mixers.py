"""Reads what replaces attention: latent attention, convolutions, state spaces, and rows of positions."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

from nnefc.frontends.decoder import AlternatingUpdates, Hyperparameters, LatentSizes, Norm, StateSpace, Weights
from nnefc.frontends.gguf.keys import Keys

__all__ = ["state_space_decoder", "with_mixers", "with_rows_of_positions"]

_HEADS = "attention.head_count_kv"


def with_mixers(keys: Keys, given: Hyperparameters, mixers: str) -> Hyperparameters:
    """Returns hyperparameters with what a file says of the mixers of an architecture.

    Raises:
        CompileError: a key is missing, or is not as it must be.
    """
    if mixers == "latent":
        return _latent(keys, given)
    counts = keys.get(_HEADS)
    if not isinstance(counts, list) or len(counts) != given.layers:
        raise keys.refuse(_HEADS, f"is no list of {given.layers} numbers, one for each layer")
    pattern = tuple(bool(count) for count in counts)
    if mixers == "convolution":
        return replace(given, attention_layers=pattern, taps=keys.positive("shortconv.l_cache"))
    rotates = keys.get("rope.scaling.finetuned") is True
    space = _state_space(keys, given.epsilon)
    return replace(given, attention_layers=pattern, rotary_pattern=(rotates,) * given.layers, state_space=space)


def _latent(keys: Keys, given: Hyperparameters) -> Hyperparameters:
    """Latent attention. Newer files have the sizes of heads in keys of their own, and those of caches in the others.

    Angles are not scaled: what YaRN scales them by, and what it scales scores by, are the same in these files.
    """
    rotated, rank = keys.positive("rope.dimension_count"), keys.positive("attention.kv_lora_rank")
    width = keys.positive("attention.key_length_mla", keys.integer("attention.key_length"))
    if not 0 < rotated < width:
        raise keys.refuse("rope.dimension_count", f"is {rotated} of {width} elements of a head")
    factor, slope = given.scaling.factor, keys.real("rope.scaling.yarn_log_multiplier", 0.0)
    growth = 1 + slope * math.log(factor) if given.scaling.kind == "yarn" and factor > 1 else 1.0
    sizes = LatentSizes(
        query_rank=keys.integer("attention.q_lora_rank", 0),
        rank=rank,
        unrotated=width - rotated,
        rotated=rotated,
        value=keys.positive("attention.value_length_mla", keys.integer("attention.value_length")),
        scale=growth * growth,
    )
    scaling = replace(given.scaling, attention_factor=1.0) if given.scaling.kind == "yarn" else given.scaling
    return replace(given, latent=sizes, key_heads=given.heads, head_size=rotated, rotated=rotated, scaling=scaling)


def _state_space(keys: Keys, epsilon: float) -> StateSpace:
    heads, inner = keys.positive("ssm.time_step_rank"), keys.positive("ssm.inner_size")
    if inner % heads:
        raise keys.refuse("ssm.inner_size", f"is {inner} for {heads} heads")
    groups = keys.positive("ssm.group_count", 1)
    taps, size = keys.positive("ssm.conv_kernel"), keys.positive("ssm.state_size")
    return StateSpace(heads, inner // heads, groups, size, taps, Norm(epsilon), groups)


def state_space_decoder(keys: Keys, layers: int, vocabulary: int) -> Hyperparameters:
    """Returns the hyperparameters of a decoder of state spaces alone.

    Raises:
        CompileError: a key is missing, or is not as it must be.
    """
    epsilon = keys.real("attention.layer_norm_rms_epsilon", 1e-5)
    return Hyperparameters(
        size=keys.positive("embedding_length"),
        layers=layers,
        heads=0,
        key_heads=0,
        head_size=0,
        vocabulary=vocabulary,
        rotated=0,
        epsilon=epsilon,
        context=keys.integer("context_length", 0),
        attention_layers=(False,) * layers,
        state_space=_state_space(keys, epsilon),
    )


def with_rows_of_positions(keys: Keys, given: Hyperparameters, weights: Weights) -> Hyperparameters:
    """Returns hyperparameters with what a file says of several rows for each position.

    Raises:
        CompileError: a key is missing, or is not as it must be.
    """
    shared, table = keys.integer("attention.shared_kv_layers", 0), weights.tensors.get("per_layer_token_embd.weight")
    if shared >= given.layers:
        raise keys.refuse("attention.shared_kv_layers", f"is {shared} of {given.layers} layers")
    updates = AlternatingUpdates(
        count=keys.positive("altup.num_inputs", 4),
        active=keys.integer("altup.active_idx", 0),
        scales=True,
        width=keys.positive("embedding_length_per_layer_input"),
        tokens=given.vocabulary if table is None else table.shape[0],
    )
    cutoffs = _cutoffs(keys, given.layers)
    return replace(given, updates=updates, shared_layers=shared, cutoffs=cutoffs, attention_scale=1.0)


def _cutoffs(keys: Keys, layers: int) -> tuple[float | None, ...]:
    """Returns where feed-forward layers cut off their gates; minus infinity is for not."""
    found = keys.get("activation_sparsity_scale")
    if found is None:
        sparse = _SPARSE if layers > _SPARSE else 0
        return tuple(NormalDist().inv_cdf(_SHARE) if n < sparse else None for n in range(layers))
    if not isinstance(found, list) or len(found) != layers or not all(isinstance(each, float) for each in found):
        raise keys.refuse("activation_sparsity_scale", f"is no list of {layers} numbers, one for each layer")
    return tuple(each if math.isfinite(each) else None for each in found)


_SPARSE, _SHARE = 10, 0.95
"""How many layers cut off their gates, and which share of them, where files say nothing."""

"""Reads what replaces attention: latent attention, convolutions, state spaces, and rows of positions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist

from nnefc.frontends.decoder import AlternatingUpdates, Hyperparameters, LatentSizes, Norm, StateSpace
from nnefc.frontends.decoder.weights import shown
from nnefc.frontends.huggingface.keys import Keys, epsilon_of

__all__ = ["state_space_decoder", "with_mixers", "with_rows_of_positions"]

_ATTENTION = ("full_attention", "attention")
_OTHERS = {"convolution": ("conv",), "state space": ("mamba", "linear_attention")}


def with_mixers(keys: Keys, given: Hyperparameters, mixers: str) -> Hyperparameters:
    """Returns hyperparameters with what a configuration says of the mixers of an architecture.

    Raises:
        CompileError: a key is missing, or is not as it must be.
    """
    if mixers == "latent":
        return _latent(keys, given)
    pattern = _pattern(keys, given.layers, _OTHERS[mixers])
    if mixers == "convolution":
        return replace(given, attention_layers=pattern, taps=keys.positive("conv_L_cache", 3))
    rotates = keys.get("position_embedding_type") == "rope"
    return replace(
        given,
        attention_layers=pattern,
        rotary_pattern=(rotates,) * given.layers,
        state_space=_state_space_of_layers(keys, given),
    )


def _latent(keys: Keys, given: Hyperparameters) -> Hyperparameters:
    """Latent attention: the elements that are rotated are a part of heads by themselves."""
    rotated = keys.positive("qk_rope_head_dim")
    interleaved = keys.get("rope_interleave")
    factor, all_dims = given.scaling.factor, given.scaling.options.get("mscale_all_dim", 0.0)
    growth = 0.1 * all_dims * math.log(factor) + 1 if given.scaling.kind != "none" and factor > 1 else 1.0
    sizes = LatentSizes(
        query_rank=keys.integer("q_lora_rank", 0),
        rank=keys.positive("kv_lora_rank"),
        unrotated=keys.positive("qk_nope_head_dim"),
        rotated=rotated,
        value=keys.positive("v_head_dim"),
        is_interleaved=interleaved is None or bool(interleaved),
        scale=growth * growth,
    )
    return replace(given, latent=sizes, key_heads=given.heads, head_size=rotated, rotated=rotated)


def _pattern(keys: Keys, layers: int, others: tuple[str, ...]) -> tuple[bool, ...]:
    """Returns for each layer whether it has attention."""
    kinds = keys.listed("layer_types", layers) or keys.listed("layers_block_type", layers)
    if kinds is None:
        indices = keys.get("full_attn_idxs")
        if not isinstance(indices, list):
            raise keys.refuse("layer_types", "is missing")
        return tuple(n in indices for n in range(layers))
    unknown = next((kind for kind in kinds if kind not in (*_ATTENTION, *others)), None)
    if unknown is not None:
        raise keys.refuse("layer_types", f"has layers of the kind '{shown(unknown)}', which are not supported")
    return tuple(kind in _ATTENTION for kind in kinds)


def _state_space_of_layers(keys: Keys, given: Hyperparameters) -> StateSpace:
    heads, inner = keys.positive("mamba_n_heads"), keys.positive("mamba_expand", 2) * given.size
    width = inner // heads if keys.get("mamba_d_head") in (None, "auto") else keys.positive("mamba_d_head")
    groups = keys.positive("mamba_n_groups", 1)
    return StateSpace(
        heads,
        width,
        groups,
        keys.positive("mamba_d_state"),
        keys.positive("mamba_d_conv", 4),
        Norm(given.epsilon),
        groups,
        _limits(keys),
    )


def _limits(keys: Keys) -> tuple[float, float]:
    found = keys.get("time_step_limit")
    if found is None:
        return 0.0, math.inf
    numbers = [_number(each) for each in found] if isinstance(found, list) else []
    if len(numbers) != 2 or any(number is None for number in numbers):
        raise keys.refuse("time_step_limit", f"is {shown(repr(found))}, not two numbers")
    return numbers[0] or 0.0, numbers[1] or 0.0


def _number(value: object) -> float | None:
    """Returns a number; of what JSON has no numbers for, there is an object with its name."""
    if isinstance(value, Mapping) and value.get("__float__") == "Infinity":
        return math.inf
    return float(value) if isinstance(value, int | float) else None


def state_space_decoder(keys: Keys, layers: int) -> Hyperparameters:
    """Returns the hyperparameters of a decoder of state spaces alone.

    Raises:
        CompileError: a key is missing, or is not as it must be.
    """
    size, heads, groups = keys.positive("hidden_size"), keys.positive("num_heads"), keys.positive("n_groups", 1)
    epsilon = epsilon_of(keys)
    space = StateSpace(
        heads,
        keys.positive("head_dim"),
        groups,
        keys.positive("state_size"),
        keys.positive("conv_kernel", 4),
        Norm(epsilon),
        groups,
        _limits(keys),
    )
    return Hyperparameters(
        size=size,
        layers=layers,
        heads=0,
        key_heads=0,
        head_size=0,
        vocabulary=keys.integer("vocab_size"),
        rotated=0,
        epsilon=epsilon,
        attention_layers=(False,) * layers,
        state_space=space,
    )


def with_rows_of_positions(keys: Keys, given: Hyperparameters) -> Hyperparameters:
    """Returns hyperparameters with what a configuration says of several rows for each position.

    Raises:
        CompileError: a key is missing, or is not as it must be.
    """
    shared, scales = keys.integer("num_kv_shared_layers", 0), keys.get("altup_correct_scale")
    if shared >= given.layers:
        raise keys.refuse("num_kv_shared_layers", f"is {shared} of {given.layers} layers")
    updates = AlternatingUpdates(
        count=keys.positive("altup_num_inputs", 4),
        active=keys.integer("altup_active_idx", 0),
        scales=scales is None or bool(scales),
        width=keys.positive("hidden_size_per_layer_input"),
        tokens=keys.positive("vocab_size_per_layer_input"),
    )
    return replace(
        given, updates=updates, shared_layers=shared, cutoffs=_cutoffs(keys, given.layers), attention_scale=1.0
    )


def _cutoffs(keys: Keys, layers: int) -> tuple[float | None, ...]:
    """Returns where feed-forward layers cut off their gates, so that a share of them is 0; None for not."""
    found = keys.listed("activation_sparsity_pattern", layers) or [0.0] * layers
    if not all(isinstance(share, int | float) and 0 <= share < 1 for share in found):
        raise keys.refuse("activation_sparsity_pattern", "is no list of shares below 1")
    return tuple(NormalDist().inv_cdf(share) if share else None for share in found)

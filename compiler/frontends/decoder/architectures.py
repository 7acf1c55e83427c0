"""The architectures of decoders and encoders: what their files do not say, and the description that follows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from nnefc.frontends.decoder.description import (
    Attention,
    Decoder,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    Mixer,
    Norm,
    Rotation,
    ShortConvolution,
)
from nnefc.frontends.decoder.hyperparameters import Hyperparameters, Routing
from nnefc.frontends.decoder.rotary import RotaryScaling, frequencies
from nnefc.support.diagnostics import CompileError

__all__ = [
    "ARCHITECTURES",
    "ENCODERS",
    "Architecture",
    "architecture_named",
    "described",
]

_GELU = "tract_core_gelu_approx"
_EXACT_GELU = "gelu"
_SILU = "silu"


@dataclass(frozen=True)
class Architecture:
    """The properties of an architecture that its files do not hold.

    Attributes:
        interleaved: whether files of GGUF, and of Hugging Face, have elements that are rotated together as neighbours.
        activation: of the feed-forward layers.
        is_gated: whether these have gates.
        is_centered: whether norms subtract the mean.
        pre_norm, post_norm, is_parallel: see :class:`Layer`.
        has_head_norms: whether queries and keys are normalized.
        scales_embeddings: whether embeddings are multiplied with the root of their size.
        whole_every: of layers with windows, every so manyth has none; 0: windows of the files are not used.
        rotates_all: whether layers without windows rotate heads, where others have windows.
        unrotated_every: every so manyth layer rotates no heads; 0 for none.
        local_base: of layers with windows, where files say nothing.
        has_sinks: see :class:`Attention`.
        normalizes_shares: whether shares of experts are divided by their sum, where files say nothing.
        alpha, limit: see :class:`Experts`.
        sum_norm: see :class:`Layer`.
        first_unnormed: whether the operand of the first layer's attention is not normalized.
        is_causal: see :class:`Attention`; else half a window lies before a query, and half behind it.
        rotates: whether heads are rotated.
        embedding_norm, final_norm: whether embeddings, and the rows behind the last layer, are normalized.
        whole_first: whether the layers without windows are the first of each group, and not the last.
        base: of the angles of all other layers, where files say nothing.
        has_feed_forward: whether layers have a second block.
        mixers: what replaces attention in all layers, or in some: `latent`, `convolution`, `state space`;
            empty where no layer has such.
        has_value_norm: see :class:`Attention`.
        has_updates: whether positions have several rows.
    """

    interleaved: tuple[bool, bool] = (False, False)
    activation: str = _SILU
    is_gated: bool = True
    is_centered: bool = False
    pre_norm: bool = True
    post_norm: bool = False
    is_parallel: bool = False
    has_head_norms: bool = False
    scales_embeddings: bool = False
    whole_every: int = 0
    rotates_all: bool = True
    unrotated_every: int = 0
    local_base: float | None = None
    has_sinks: bool = False
    normalizes_shares: bool = True
    alpha: float = 0.0
    limit: float = 0.0
    sum_norm: bool = False
    first_unnormed: bool = False
    is_causal: bool = True
    rotates: bool = True
    embedding_norm: bool = False
    final_norm: bool = True
    whole_first: bool = False
    base: float = 10000.0
    has_feed_forward: bool = True
    mixers: str = ""
    has_value_norm: bool = False
    has_updates: bool = False


_NEVER = 1 << 30
_LLAMA = Architecture(interleaved=(True, False))

ARCHITECTURES: dict[str, Architecture] = {
    "llama": _LLAMA,
    "mistral": Architecture(interleaved=(True, False), whole_every=_NEVER),
    "smollm3": Architecture(interleaved=(True, False), unrotated_every=4),
    "granite": _LLAMA,
    "olmo2": Architecture(pre_norm=False, post_norm=True, has_head_norms=True),
    "qwen2": Architecture(),
    "qwen3": Architecture(has_head_norms=True),
    "qwen2moe": Architecture(normalizes_shares=False),
    "qwen3moe": Architecture(has_head_norms=True),
    "gemma": Architecture(activation=_GELU, scales_embeddings=True),
    "gemma2": Architecture(activation=_GELU, scales_embeddings=True, post_norm=True, whole_every=2),
    "gemma3": Architecture(
        activation=_GELU, scales_embeddings=True, post_norm=True, has_head_norms=True, whole_every=6, local_base=10000.0
    ),
    "gemma3n": Architecture(
        activation=_GELU,
        scales_embeddings=True,
        post_norm=True,
        has_head_norms=True,
        whole_every=5,
        local_base=10000.0,
        base=1000000.0,
        has_value_norm=True,
        has_updates=True,
    ),
    "phi2": Architecture(activation=_GELU, is_gated=False, is_centered=True, is_parallel=True),
    "phi3": Architecture(whole_every=_NEVER),
    "glm4": Architecture(interleaved=(True, True), post_norm=True),
    "cohere2": Architecture(
        interleaved=(True, True), is_centered=True, is_parallel=True, whole_every=4, rotates_all=False
    ),
    "exaone4": Architecture(pre_norm=False, post_norm=True, has_head_norms=True, whole_every=4, rotates_all=False),
    "gpt-oss": Architecture(has_sinks=True, whole_every=2, alpha=1.702, limit=7.0),
    "granitemoe": _LLAMA,
    "deepseek2": Architecture(interleaved=(True, True), normalizes_shares=False, mixers="latent"),
    "lfm2": Architecture(has_head_norms=True, mixers="convolution", base=1000000.0),
    "mamba2": Architecture(rotates=False, has_feed_forward=False, mixers="state space"),
    "granitehybrid": Architecture(interleaved=(True, False), mixers="state space"),
}
"""Architectures by their names in GGUF files."""

_BERT = Architecture(
    activation=_EXACT_GELU,
    is_gated=False,
    is_centered=True,
    pre_norm=False,
    sum_norm=True,
    is_causal=False,
    rotates=False,
    embedding_norm=True,
    final_norm=False,
)

ENCODERS: dict[str, Architecture] = {
    "bert": _BERT,
    "nomic-bert": replace(_BERT, activation=_SILU, is_gated=True, rotates=True, base=1000.0),
    "modern-bert": Architecture(
        activation=_EXACT_GELU,
        is_centered=True,
        first_unnormed=True,
        is_causal=False,
        embedding_norm=True,
        whole_every=3,
        whole_first=True,
        local_base=10000.0,
        base=160000.0,
    ),
    "gemma-embedding": replace(ARCHITECTURES["gemma3"], is_causal=False, base=1000000.0),
}
"""Encoders, which compute one result for each text, by their names in GGUF files."""

_HEADS_SCALE = {("gemma2", 46), ("gemma3", 62)}
"""Architectures and numbers of layers whose scores are over the root of `size / heads`, where files say nothing."""


def architecture_named(name: str) -> Architecture:
    """Returns what a decoder or an encoder does that its files do not say."""
    return ENCODERS.get(name) or ARCHITECTURES[name]


def described(name: str, given: Hyperparameters, is_gguf: bool, context: int, source: str) -> Decoder:
    """Returns the description of a decoder.

    Args:
        name: of its architecture.
        given: what its files say.
        is_gguf: whether the rows of heads are in the order of files of GGUF.
        context: of a session.
        source: the file, for messages.

    Raises:
        CompileError: the numbers do not fit each other.
    """
    own = architecture_named(name)
    _check(given, source)
    rotations = _rotations(own, given, context, source)
    norm = Norm(given.epsilon, own.is_centered)
    return Decoder(
        name=name.replace("-", "_"),
        size=given.size,
        vocabulary=given.vocabulary,
        norm=norm,
        layers=tuple(_layer(name, own, given, norm, n, not is_gguf, rotations) for n in range(given.layers)),
        rotations=rotations,
        context=given.context,
        embedding_scale=given.embedding_scale or (math.sqrt(given.size) if own.scales_embeddings else 1.0),
        logit_scale=given.logit_scale or 1.0,
        logit_cap=given.logit_cap,
        updates=given.updates,
    )


_MAX_LAYERS, _MAX_SIZE = 1000, 1 << 20


def _check(given: Hyperparameters, source: str) -> None:
    has_attention = given.attention_layers is None or any(given.attention_layers)
    checks = [
        ("layers", given.layers, _MAX_LAYERS),
        ("elements of an embedding", given.size, _MAX_SIZE),
        ("tokens", given.vocabulary, 1 << 26),
    ]
    if has_attention:
        checks += [
            ("heads", given.heads, _MAX_SIZE),
            ("heads of keys", given.key_heads, _MAX_SIZE),
            ("elements of a head", given.head_size, _MAX_SIZE),
        ]
    if given.updates is not None:
        updates = given.updates
        checks += [("elements of a layer's embeddings", updates.width, _MAX_SIZE), ("rows", updates.count, 64)]
        checks += [("tokens with embeddings of a layer", updates.tokens, 1 << 26)]
        checks += [("layers with keys", given.layers - given.shared_layers, given.layers)]
        if not 0 <= updates.active < updates.count:
            raise CompileError(
                f"'{source}': the active row of a position is {updates.active}, it can be 0 to {updates.count - 1}"
            )
    if given.latent is not None:
        own = given.latent
        checks += [("elements of a latent vector", own.rank, _MAX_SIZE), ("elements of a value", own.value, _MAX_SIZE)]
        checks += [("elements of a key without positions", own.unrotated, _MAX_SIZE)]
    if given.attention_layers is not None and not all(given.attention_layers):
        checks += [] if given.state_space is not None else [("taps of a convolution", given.taps, 1 << 10)]
    if given.state_space is not None:
        space = given.state_space
        for name in ("heads", "width", "groups", "size", "taps", "norm_groups"):
            checks.append((f"{name} of a state space", getattr(space, name), _MAX_SIZE))
    for what, count, maximum in checks:
        if not 0 < count <= maximum:
            raise CompileError(f"'{source}': a model cannot have {count} {what}")
    if has_attention and (
        given.heads % given.key_heads or given.head_size % 2 or not 0 < given.rotated <= given.head_size
    ):
        raise CompileError(
            f"'{source}': {given.heads} heads of {given.head_size} elements, {given.key_heads} heads of keys and "
            f"{given.rotated} rotated elements do not fit"
        )
    if given.state_space is not None and given.state_space.heads % given.state_space.groups:
        raise CompileError(
            f"'{source}': {given.state_space.heads} heads cannot share {given.state_space.groups} groups of a state"
        )
    if not 0 <= given.epsilon < 1:
        raise CompileError(f"'{source}': the epsilon of norms is {given.epsilon}")


def _rotations(own: Architecture, given: Hyperparameters, context: int, source: str) -> dict[str, Rotation]:
    if not own.rotates or not (given.attention_layers is None or any(given.attention_layers)):
        return {}
    found, scale = frequencies(given.rotated, given.base, given.scaling, context, source)
    if given.pair_factors:
        if len(given.pair_factors) != len(found):
            raise CompileError(
                f"'{source}': there are {len(given.pair_factors)} factors for {len(found)} pairs of elements"
            )
        found = found / np.asarray(given.pair_factors, np.float64)
    made = {"global": Rotation("global", found, scale)}
    local = given.local_base or own.local_base
    if local is not None and given.window:
        made["local"] = Rotation("local", frequencies(given.rotated, local, RotaryScaling(), context, source)[0])
    return made


def _layer(
    name: str,
    own: Architecture,
    given: Hyperparameters,
    norm: Norm,
    n: int,
    is_folder: bool,
    rotations: Mapping[str, Rotation],
) -> Layer:
    cutoff = given.cutoffs[n] if given.cutoffs else None
    dense = FeedForward(given.activation or own.activation, own.is_gated, cutoff)
    feed: FeedForward | Experts | None = dense if own.has_feed_forward else None
    if given.routing is not None and (given.routing.layers is None or given.routing.layers[n]):
        feed = _experts(own, given, given.routing, dense)
    return Layer(
        _mixer(name, own, given, norm, n, is_folder, rotations),
        feed,
        own.pre_norm,
        own.post_norm,
        own.is_parallel,
        residual_scale=given.residual_scale or 1.0,
        sum_norm=own.sum_norm,
        has_attention_norm=bool(n) or not own.first_unnormed,
    )


_EXPERT_ACTIVATIONS = {_SILU: "silu", _GELU: "gelu_tanh", _EXACT_GELU: "gelu"}


def _experts(own: Architecture, given: Hyperparameters, routing: Routing, dense: FeedForward) -> Experts:
    normalized = own.normalizes_shares if routing.is_normalized is None else routing.is_normalized
    return Experts(
        routing.used,
        _EXPERT_ACTIVATIONS[dense.activation],
        routing.scoring,
        normalized,
        dense if routing.has_shared else None,
        own.alpha,
        given.clamp or own.limit if own.limit else 0.0,
        routing.scale,
        routing.groups,
        routing.groups_used,
        routing.group_terms,
    )


def _mixer(
    name: str,
    own: Architecture,
    given: Hyperparameters,
    norm: Norm,
    n: int,
    is_folder: bool,
    rotations: Mapping[str, Rotation],
) -> Mixer:
    """Returns what lets positions see others in a layer."""
    if given.attention_layers is not None and not given.attention_layers[n]:
        return given.state_space or ShortConvolution(given.taps)
    if given.latent is not None:
        latent = given.latent
        return LatentAttention(
            given.heads,
            latent.query_rank,
            latent.rank,
            latent.unrotated,
            latent.rotated,
            latent.value,
            "global",
            latent.is_interleaved,
            norm,
            given.attention_scale or latent.scale * (latent.unrotated + latent.rotated) ** -0.5,
        )
    has_window = _has_window(own, given, n)
    scale = given.attention_scale
    if not scale and (name, given.layers) in _HEADS_SCALE:
        scale = (given.size / given.heads) ** -0.5
    return Attention(
        heads=given.heads,
        key_heads=given.key_heads,
        width=given.head_size,
        rotation=_rotation(own, given, n, has_window, rotations),
        rotated=given.rotated,
        is_interleaved=own.interleaved[is_folder],
        norm=Norm(norm.epsilon) if own.has_head_norms else None,
        window=0 if not has_window else given.window if own.is_causal else max(given.window // 2, 1),
        scale=scale,
        cap=given.attention_cap,
        has_sinks=own.has_sinks,
        is_causal=own.is_causal,
        has_value_norm=own.has_value_norm,
        keys_of=_keys_of(own, given, n, has_window),
    )


def _keys_of(own: Architecture, given: Hyperparameters, n: int, has_window: bool) -> int | None:
    """Returns the layer whose keys and values a layer reads: the last of its kind that has some of its own."""
    first = given.layers - given.shared_layers
    if n < first:
        return None
    return next((m for m in reversed(range(first)) if _has_window(own, given, m) == has_window), None)


def _has_window(own: Architecture, given: Hyperparameters, n: int) -> bool:
    """Returns whether a layer sees the last positions alone."""
    if not given.window:
        return False
    if given.window_pattern is not None:
        return given.window_pattern[n]
    return bool(own.whole_every and (n + (not own.whole_first)) % own.whole_every)


def _rotation(
    own: Architecture, given: Hyperparameters, n: int, has_window: bool, rotations: Mapping[str, Rotation]
) -> str | None:
    """Returns the name of a layer's rotation."""
    if not own.rotates:
        return None
    if given.rotary_pattern is not None:
        rotates = given.rotary_pattern[n]
    elif own.unrotated_every:
        rotates = bool((n + 1) % own.unrotated_every)
    else:
        rotates = own.rotates_all or has_window or not given.window
    if not rotates:
        return None
    return "local" if has_window and "local" in rotations else "global"

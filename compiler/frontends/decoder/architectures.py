"""The architectures of decoders and encoders: what their files do not say, and the description that follows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from nnefc.frontends.decoder.description import Attention, Decoder, Experts, FeedForward, Layer, Norm, Rotation
from nnefc.frontends.decoder.rotary import RotaryScaling, frequencies
from nnefc.support.diagnostics import CompileError

__all__ = ["ARCHITECTURES", "ENCODERS", "Architecture", "Hyperparameters", "architecture_named", "described"]

_GELU = "tract_core_gelu_approx"
_EXACT_GELU = "gelu"
_SILU = "silu"


@dataclass(frozen=True)
class Hyperparameters:
    """What the files of a model say, under one name for all formats.

    Attributes:
        size, layers, heads, key_heads, head_size, vocabulary: sizes.
        rotated: elements of a head that are rotated.
        epsilon: of norms.
        context: of the training; 0 if it is not known.
        base, local_base: of the angles; of those of layers with a window, None where they are the same.
        scaling: of the angles.
        pair_factors: by which frequencies are divided besides, one for each pair; empty for none.
        window: of layers that have one; 0 for none.
        window_pattern: for each layer whether it has the window; None where the architecture says it.
        rotary_pattern: for each layer whether it rotates heads; None where the architecture says it.
        attention_scale, attention_cap, logit_scale, logit_cap, embedding_scale, residual_scale: 0 where they are not
            given.
        experts_used: of each row; 0 for a model without experts.
        expert_layers: for each layer whether it has experts; None for all.
        normalized_shares: whether the shares of a row's experts are divided by their sum.
        has_shared_expert: whether all rows use a further layer.
        activation: of the feed-forward layers; None where the architecture says it.
    """

    size: int
    layers: int
    heads: int
    key_heads: int
    head_size: int
    vocabulary: int
    rotated: int
    epsilon: float
    context: int = 0
    base: float = 10000.0
    local_base: float | None = None
    scaling: RotaryScaling = field(default_factory=RotaryScaling)
    pair_factors: tuple[float, ...] = ()
    window: int = 0
    window_pattern: tuple[bool, ...] | None = None
    rotary_pattern: tuple[bool, ...] | None = None
    attention_scale: float = 0.0
    attention_cap: float = 0.0
    logit_scale: float = 0.0
    logit_cap: float = 0.0
    embedding_scale: float = 0.0
    residual_scale: float = 0.0
    experts_used: int = 0
    expert_layers: tuple[bool, ...] | None = None
    normalized_shares: bool = True
    has_shared_expert: bool = False
    activation: str | None = None


@dataclass(frozen=True)
class Architecture:
    """What an architecture does that its files do not say.

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
        gate, expert_activation, alpha, limit: see :class:`Experts`.
        sum_norm: see :class:`Layer`.
        first_unnormed: whether the operand of the first layer's attention is not normalized.
        is_causal: see :class:`Attention`; else half a window lies before a query, and half behind it.
        rotates: whether heads are rotated.
        embedding_norm, final_norm: whether embeddings, and the rows behind the last layer, are normalized.
        whole_first: whether the layers without windows are the first of each group, and not the last.
        base: of the angles of all other layers, where files say nothing.
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
    gate: str = "softmax_topk"
    expert_activation: str = "swiglu"
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
    "qwen2moe": Architecture(gate="softmax_all"),
    "qwen3moe": Architecture(has_head_norms=True),
    "gemma": Architecture(activation=_GELU, scales_embeddings=True),
    "gemma2": Architecture(activation=_GELU, scales_embeddings=True, post_norm=True, whole_every=2),
    "gemma3": Architecture(
        activation=_GELU, scales_embeddings=True, post_norm=True, has_head_norms=True, whole_every=6, local_base=10000.0
    ),
    "phi2": Architecture(activation=_GELU, is_gated=False, is_centered=True, is_parallel=True),
    "phi3": Architecture(whole_every=_NEVER),
    "glm4": Architecture(interleaved=(True, True), post_norm=True),
    "cohere2": Architecture(
        interleaved=(True, True), is_centered=True, is_parallel=True, whole_every=4, rotates_all=False
    ),
    "exaone4": Architecture(pre_norm=False, post_norm=True, has_head_norms=True, whole_every=4, rotates_all=False),
    "gpt-oss": Architecture(
        has_sinks=True, whole_every=2, expert_activation="swiglu", gate="softmax_topk", alpha=1.702, limit=7.0
    ),
}
"""By the names that files of GGUF have for them."""

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
"""Those that compute one result for each text, by the names that files of GGUF have for them."""

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
    )


_MAX_LAYERS, _MAX_SIZE = 1000, 1 << 20


def _check(given: Hyperparameters, source: str) -> None:
    checks = (
        ("layers", given.layers, _MAX_LAYERS),
        ("elements of an embedding", given.size, _MAX_SIZE),
        ("heads", given.heads, _MAX_SIZE),
        ("heads of keys", given.key_heads, _MAX_SIZE),
        ("elements of a head", given.head_size, _MAX_SIZE),
        ("tokens", given.vocabulary, 1 << 26),
    )
    for what, count, maximum in checks:
        if not 0 < count <= maximum:
            raise CompileError(f"'{source}': a model cannot have {count} {what}")
    if given.heads % given.key_heads or given.head_size % 2 or not 0 < given.rotated <= given.head_size:
        raise CompileError(
            f"'{source}': {given.heads} heads of {given.head_size} elements, {given.key_heads} heads of keys and "
            f"{given.rotated} rotated elements do not fit"
        )
    if not 0 <= given.epsilon < 1:
        raise CompileError(f"'{source}': the epsilon of norms is {given.epsilon}")


def _rotations(own: Architecture, given: Hyperparameters, context: int, source: str) -> dict[str, Rotation]:
    if not own.rotates:
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
    has_window = _has_window(own, given, n)
    scale = given.attention_scale
    if not scale and (name, given.layers) in _HEADS_SCALE:
        scale = (given.size / given.heads) ** -0.5
    attention = Attention(
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
    )
    dense = FeedForward(given.activation or own.activation, own.is_gated)
    feed: FeedForward | Experts = dense
    if given.experts_used and (given.expert_layers is None or given.expert_layers[n]):
        gate = own.gate if given.normalized_shares else "softmax_all"
        shared = dense if given.has_shared_expert else None
        feed = Experts(given.experts_used, own.expert_activation, gate, shared, own.alpha, own.limit)
    return Layer(
        attention,
        feed,
        own.pre_norm,
        own.post_norm,
        own.is_parallel,
        residual_scale=given.residual_scale or 1.0,
        sum_norm=own.sum_norm,
        has_attention_norm=bool(n) or not own.first_unnormed,
    )


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

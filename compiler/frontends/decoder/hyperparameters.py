"""The hyperparameters of decoders and encoders, with the same names for all formats."""

from __future__ import annotations

from dataclasses import dataclass, field

from nnefc.frontends.decoder.description import AlternatingUpdates, StateSpace
from nnefc.frontends.decoder.rotary import RotaryScaling

__all__ = ["Hyperparameters", "LatentSizes", "Routing"]


@dataclass(frozen=True)
class LatentSizes:
    """Sizes of latent attention; see :class:`LatentAttention`.

    Attributes:
        scale: of scores besides one over the root of a head's elements.
    """

    query_rank: int
    rank: int
    unrotated: int
    rotated: int
    value: int
    is_interleaved: bool = True
    scale: float = 1.0


@dataclass(frozen=True)
class Routing:
    """How experts are chosen; see :class:`Experts`.

    Attributes:
        used: experts of each row.
        layers: for each layer whether it has experts; None for all.
        is_normalized: whether shares are divided by their sum; None where the architecture says it.
        has_shared: whether all rows use a further layer.
    """

    used: int
    layers: tuple[bool, ...] | None = None
    is_normalized: bool | None = None
    has_shared: bool = False
    scoring: str = "softmax"
    scale: float = 1.0
    groups: int = 1
    groups_used: int = 1
    group_terms: int = 1


@dataclass(frozen=True)
class Hyperparameters:
    """The hyperparameters in a model's files, with the same names for all formats.

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
        routing: of experts; None for a model without them.
        activation: of the feed-forward layers; None where the architecture says it.
        latent: of latent attention; None for that of all heads.
        attention_layers: for each layer whether it has attention, where others have what follows; None for all.
        taps: of short convolutions, which the other layers have; 0 for none.
        state_space: which the other layers have; None for none.
        clamp: where gated activations of experts are cut off; 0 where the architecture says it.
        updates: of the rows of a position; None where there is one.
        shared_layers: how many of the last layers read keys and values of layers before them.
        cutoffs: of feed-forward layers, one for each; empty for none.
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
    routing: Routing | None = None
    activation: str | None = None
    latent: LatentSizes | None = None
    attention_layers: tuple[bool, ...] | None = None
    taps: int = 0
    state_space: StateSpace | None = None
    clamp: float = 0.0
    updates: AlternatingUpdates | None = None
    shared_layers: int = 0
    cutoffs: tuple[float | None, ...] = ()

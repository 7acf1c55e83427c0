"""Describes decoders and encoders: which blocks each layer has, and their sizes, in one way for all formats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "AlternatingUpdates",
    "Attention",
    "Decoder",
    "Dense",
    "Encoding",
    "Experts",
    "FeedForward",
    "LatentAttention",
    "Layer",
    "Mixer",
    "Norm",
    "Rotation",
    "ShortConvolution",
    "StateSpace",
]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Norm:
    """A normalization of rows.

    Attributes:
        epsilon: added to the mean square.
        centered: whether the mean is subtracted before.
    """

    epsilon: float
    centered: bool = False


@dataclass(frozen=True, eq=False)
class Rotation:
    """Rotary position embeddings.

    Attributes:
        name: of the tensors that hold the angles.
        frequencies: by which angle each pair of elements turns from one position to the next.
        scale: of the rotated elements.
    """

    name: str
    frequencies: Array
    scale: float = 1.0


@dataclass(frozen=True)
class Attention:
    """Attention to all positions before, or to all positions of a text.

    Attributes:
        heads, key_heads: of queries; of keys and values.
        width: elements of a head.
        rotation: the name of a rotation of the decoder; None where positions are not embedded.
        rotated: how many elements of a head are rotated; the others stay.
        is_interleaved: whether neighbours are rotated together, as they are stored; else those half of them apart.
        norm: of queries and keys; None where they have none.
        window: how many positions a query sees, its own the last of them; 0 for all. Where it sees positions behind its
            own, so many on either side.
        scale: of scores; 0 for one over the root of the width.
        cap: scores become `cap · tanh(score / cap)`; 0 leaves them.
        has_sinks: whether each head has a score without a value.
        is_causal: whether a query sees no position behind its own.
        has_value_norm: whether values are normalized, without a weight.
        keys_of: the number of the layer whose keys and values it reads; None for its own.
    """

    heads: int
    key_heads: int
    width: int
    rotation: str | None
    rotated: int
    is_interleaved: bool = False
    norm: Norm | None = None
    window: int = 0
    scale: float = 0.0
    cap: float = 0.0
    has_sinks: bool = False
    is_causal: bool = True
    has_value_norm: bool = False
    keys_of: int | None = None


@dataclass(frozen=True)
class LatentAttention:
    """Attention whose keys and values are products with one short vector a position (DeepSeek-AI, "DeepSeek-V2", 2024).

    Caches hold that vector, and the rotated part of keys, which all heads share: queries are multiplied with the matrix
    of keys, and what attention finds with that of values.

    Attributes:
        heads: of queries.
        query_rank: elements of a vector that queries are products with; 0 for those of the layer's operand.
        rank: elements of the vector of keys and values.
        unrotated, rotated, value: elements of a head's queries and keys without positions, with positions, of values.
        rotation: the name of a rotation of the decoder.
        is_interleaved: see :class:`Attention`.
        norm: of both vectors.
        scale: of scores.
    """

    heads: int
    query_rank: int
    rank: int
    unrotated: int
    rotated: int
    value: int
    rotation: str
    is_interleaved: bool
    norm: Norm
    scale: float


@dataclass(frozen=True)
class ShortConvolution:
    """A gated convolution of each channel over the last positions (Liquid AI, "LFM2", 2025).

    Attributes:
        taps: how many positions it sees, its own the last of them.
    """

    taps: int


@dataclass(frozen=True)
class StateSpace:
    """A selective state space of one decay for each head (Dao, Gu, "Transformers are SSMs", 2024).

    Attributes:
        heads, width: of the operand, and elements of a head.
        groups, size: of the matrices that enter and leave a state, and elements of a state for each element of a head.
        taps: of the convolution before.
        norm: of the gated result.
        norm_groups: parts of a row that are normalized by themselves.
        limits: of steps of time.
    """

    heads: int
    width: int
    groups: int
    size: int
    taps: int
    norm: Norm
    norm_groups: int = 1
    limits: tuple[float, float] = (0.0, math.inf)


Mixer: TypeAlias = Attention | LatentAttention | ShortConvolution | StateSpace
"""The parts of a layer that mix positions."""


@dataclass(frozen=True)
class FeedForward:
    """Two layers for each row, the first of which may have a gate.

    Attributes:
        activation: the operation.
        is_gated: whether the activation's result is multiplied with a second product.
        cutoff: gates are cut off so many standard deviations above their mean, and that is subtracted; None for not.
    """

    activation: str
    is_gated: bool
    cutoff: float | None = None


@dataclass(frozen=True)
class Experts:
    """Feed-forward layers of which each row uses a few.

    Attributes:
        count: how many a row uses.
        activation: of `nnefc_experts`.
        scoring: `softmax` or `sigmoid` of a router's scores; shares are its results for the chosen experts.
        is_normalized: whether shares are divided by their sum.
        shared: the layer that all rows use besides; None for none.
        alpha, limit: of clamped activations; 0 for none.
        scale: of shares.
        groups, groups_used: experts are chosen among those of the groups with the largest scores; 1 for all.
        group_terms: of how many of a group's largest scores its own is the sum.
    """

    count: int
    activation: str
    scoring: str = "softmax"
    is_normalized: bool = True
    shared: FeedForward | None = None
    alpha: float = 0.0
    limit: float = 0.0
    scale: float = 1.0
    groups: int = 1
    groups_used: int = 1
    group_terms: int = 1


@dataclass(frozen=True)
class Layer:
    """A layer of a decoder.

    Attributes:
        mixer: its first block.
        feed_forward: its second block; None for none.
        pre_norm, post_norm: whether the blocks' operands, and their results, are normalized.
        is_parallel: whether both blocks have one operand.
        residual_scale: of what each block adds.
        sum_norm: whether the sum of a block's operand and its result is normalized.
        has_attention_norm: whether the first block's operand is normalized where `pre_norm` says it of both.
    """

    mixer: Mixer
    feed_forward: FeedForward | Experts | None
    pre_norm: bool = True
    post_norm: bool = False
    is_parallel: bool = False
    residual_scale: float = 1.0
    sum_norm: bool = False
    has_attention_norm: bool = True


@dataclass(frozen=True)
class AlternatingUpdates:
    """Several rows for each position, one of which layers compute (Baykal et al., "Alternating Updates", 2023).

    Layers also have a residual of low rank, and embeddings of tokens of their own.

    Attributes:
        count: rows of a position.
        active: the number of the row that layers compute.
        scales: whether that row is multiplied with a vector before a layer's own embeddings choose from it.
        width: elements of a layer's own embeddings.
        tokens: how many tokens have these.
    """

    count: int
    active: int
    scales: bool
    width: int
    tokens: int


@dataclass(frozen=True, eq=False)
class Decoder:
    """A decoder of a language model.

    Attributes:
        name: of its architecture.
        size, vocabulary: elements of an embedding, and how many tokens there are.
        norm: of rows.
        layers: in their order.
        rotations: by name.
        context: for how many positions it was trained; 0 if that is not known.
        embedding_scale: of embeddings.
        logit_scale, logit_cap: of logits; a cap of 0 leaves them.
        updates: of the rows of a position; None where there is one.
    """

    name: str
    size: int
    vocabulary: int
    norm: Norm
    layers: tuple[Layer, ...]
    rotations: dict[str, Rotation]
    context: int = 0
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float = 0.0
    updates: AlternatingUpdates | None = None

    @property
    def angle_width(self) -> int:
        """How many elements of a head angles are for; 0 where no positions are embedded."""
        mixers = [layer.mixer for layer in self.layers]
        widths = (mixer.width for mixer in mixers if isinstance(mixer, Attention))
        return next(widths, 0) or next((m.rotated for m in mixers if isinstance(m, LatentAttention)), 0)


@dataclass(frozen=True)
class Dense:
    """A layer behind the pooling of an encoder.

    Attributes:
        name: of its tensors.
        activation: the operation; None for none.
        norm: the name of the norm behind it; None for none.
    """

    name: str
    activation: str | None = None
    norm: str | None = None


@dataclass(frozen=True)
class Encoding:
    """How the rows of a text become one result.

    Attributes:
        pooling: `cls` takes the first row, `last` the last one, `mean` and `max` those of all, `mean_sqrt_len` their
            sum over the root of their number.
        layers: behind the pooling.
        is_normalized: whether the result is divided by its norm.
        scores: whether the result is scores of a pair of texts, and not an embedding.
        takes_segments: whether an input says which text of a pair a token belongs to.
    """

    pooling: str
    layers: tuple[Dense, ...] = ()
    is_normalized: bool = False
    scores: bool = False
    takes_segments: bool = False

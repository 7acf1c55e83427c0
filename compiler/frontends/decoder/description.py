"""Describes decoders and encoders: which blocks each layer has, and their sizes, in one way for all formats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Attention", "Decoder", "Dense", "Encoding", "Experts", "FeedForward", "Layer", "Norm", "Rotation"]

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


@dataclass(frozen=True)
class FeedForward:
    """Two layers for each row, the first of which may have a gate.

    Attributes:
        activation: the operation.
        is_gated: whether the activation's result is multiplied with a second product.
    """

    activation: str
    is_gated: bool


@dataclass(frozen=True)
class Experts:
    """Feed-forward layers of which each row uses a few.

    Attributes:
        count: how many a row uses.
        activation: of `tract_moe_ffn`.
        gate: what makes shares of scores, as `tract_moe_ffn` has it.
        shared: the layer that all rows use besides; None for none.
        alpha, limit: of clamped activations; 0 for none.
        scale: of the sum of the experts.
    """

    count: int
    activation: str
    gate: str
    shared: FeedForward | None = None
    alpha: float = 0.0
    limit: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class Layer:
    """A layer of a decoder.

    Attributes:
        attention: its first block.
        feed_forward: its second block.
        pre_norm, post_norm: whether the blocks' operands, and their results, are normalized.
        is_parallel: whether both blocks have one operand.
        residual_scale: of what each block adds.
        sum_norm: whether the sum of a block's operand and its result is normalized.
        has_attention_norm: whether the first block's operand is normalized where `pre_norm` says it of both.
    """

    attention: Attention
    feed_forward: FeedForward | Experts
    pre_norm: bool = True
    post_norm: bool = False
    is_parallel: bool = False
    residual_scale: float = 1.0
    sum_norm: bool = False
    has_attention_norm: bool = True


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

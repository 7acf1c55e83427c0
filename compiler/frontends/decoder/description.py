"""Describes a decoder: which blocks each of its layers has, and their sizes, in one way for all formats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Attention", "Decoder", "Experts", "FeedForward", "Layer", "Norm", "Rotation"]

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
    """Attention to all positions before.

    Attributes:
        heads, key_heads: of queries; of keys and values.
        width: elements of a head.
        rotation: the name of a rotation of the decoder; None where positions are not embedded.
        rotated: how many elements of a head are rotated; the others stay.
        is_interleaved: whether neighbours are rotated together, as they are stored; else those half of them apart.
        norm: of queries and keys; None where they have none.
        window: how many positions a query sees; 0 for all.
        scale: of scores; 0 for one over the root of the width.
        cap: scores become `cap · tanh(score / cap)`; 0 leaves them.
        has_sinks: whether each head has a score without a value.
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
    """

    attention: Attention
    feed_forward: FeedForward | Experts
    pre_norm: bool = True
    post_norm: bool = False
    is_parallel: bool = False
    residual_scale: float = 1.0


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

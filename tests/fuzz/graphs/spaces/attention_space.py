"""Attention, and what stands around it in language models."""

from __future__ import annotations

from typing import Any

import numpy as np
from graph import Tensor
from steps import Rejected
from walk import Walk

from spaces.declared import BOOL, I64, F, computed_indices, reshaped, some, space, weight


@space("Attention")
def _attention(w: Walk, name: str) -> object:
    batch, shared, groups = w.number(1, 3), w.number(1, 3), w.one(1, 1, 2, 3)
    heads, queries, new = shared * groups, w.size(), w.size()
    width, values = (w.one(1, 2, 3, 4, 8, 16) for _ in range(2))
    flat = w.chance(0.4)
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": shared} if flat else {}
    query, key, value = (
        heads_of(w, batch, count, length, size, flat)
        for count, length, size in ((heads, queries, width), (shared, new, width), (shared, new, values))
    )
    past = w.number(1, 9) if w.chance(0.3) else 0
    before = [weight(w, w.random((batch, shared, past, size))) if past else None for size in (width, values)]
    keys = past + new
    filled = []
    if not past and w.opset >= 24 and w.chance(0.2):
        filled = [w.constant(w.rng.integers(0, keys + 1, batch), I64)]
    attributes |= some(w, scale=w.real(0.1, 1)) | (some(w, softcap=w.real(0.5, 5)) if w.chance(0.4) else {})
    attributes |= {"is_causal": 1} if w.chance(0.4) else {}
    if w.opset >= 25 and w.chance(0.3):
        attributes |= some(w, left_window_size=w.number(0, keys), right_window_size=w.number(0, keys))
    mask = _mask(w, (batch, heads, queries, keys), with_lengths=not filled) if w.chance(0.5) else None
    results = 3 if past else 1
    # The scores as they come out of one of the stages; of those that are not seen nothing can be compared.
    if past and w.chance(0.3):
        results, attributes["qk_matmul_output_mode"] = 4, w.one(0, 1, 3)
    return w.add(name, query, key, value, mask, *before, *filled, outputs=results, **attributes)


def heads_of(w: Walk, batch: int, heads: int, length: int, size: int, flat: bool) -> Tensor:
    """`[batch, heads, length, size]`, or `[batch, length, heads · size]`: computed if something fits, else new."""
    shape = (batch, length, heads * size) if flat else (batch, heads, length, size)
    return (reshaped(w, shape) if w.chance(0.7) else None) or weight(w, w.random(shape))


def _mask(w: Walk, shape: tuple[int, ...], with_lengths: bool) -> Tensor:
    """A mask whose shape is repeated to a shape."""
    shape = tuple(1 if w.chance(0.3) else size for size in shape[:-1]) + shape[-1:]
    shape = shape[w.number(0, 2) :]
    if with_lengths and shape[-1] > 1 and w.chance(0.15):
        shape = (*shape[:-1], w.number(1, shape[-1]))
    if w.chance(0.5):
        return weight(w, w.random(shape))
    return w.constant(w.rng.random(shape) < 0.7, BOOL)


@space("RotaryEmbedding")
def _rotary(w: Walk, name: str) -> object:
    batch, heads, length = w.number(1, 3), w.number(1, 4), w.size()
    size = 2 * w.number(1, 8)
    rotated = 2 * w.number(1, size // 2) if w.chance(0.4) else 0
    flat = w.chance(0.4)
    x = heads_of(w, batch, heads, length, size, flat)
    half = (rotated or size) // 2
    angles: Any
    if w.chance(0.6):
        positions = w.number(1, 20)
        angles = w.rng.uniform(-3, 3, (positions, half))
        shape = (batch, length)
        if w.chance(0.4):
            rows = computed_indices(w, shape, positions)
        else:
            rows = w.constant(w.rng.integers(0, positions, shape), I64)
        tail = [rows]
    else:
        angles, tail = w.rng.uniform(-3, 3, (batch, length, half)), []
    caches = [weight(w, turn(angles).astype(F)) for turn in (np.cos, np.sin)]
    attributes = ({"num_heads": heads} if flat else {}) | ({"rotary_embedding_dim": rotated} if rotated else {})
    return w.add(name, x, *caches, *tail, **attributes, **some(w, interleaved=w.number(0, 1)))


@space("TensorScatter")
def _tensor_scatter(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(2, 5), minimum=1)
    axis = w.number(1, x.array.ndim - 1)
    maximum = x.shape[axis]
    shape = list(x.shape)
    shape[axis] = w.number(1, maximum)
    circular = w.chance(0.4)
    starts = None
    if w.chance(0.7):
        last = maximum - 1 if circular else maximum - shape[axis]
        starts = w.constant(w.rng.integers(0, last + 1, x.shape[0]), I64)
    given = {"axis": axis - x.array.ndim * w.number(0, 1)} if axis != x.array.ndim - 2 or w.chance(0.5) else {}
    return w.add(name, x, weight(w, w.random(shape)), starts, **given, **({"mode": "circular"} if circular else {}))


@space("CausalConvWithState")
def _causal_convolution(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3], minimum=1)
    batch, channels, _ = x.shape
    size = w.number(1, 5)
    if size == 1 and w.chance(0.8):
        raise Rejected("nothing is kept")
    weights = weight(w, w.random((channels, 1, size)))
    bias = weight(w, w.random((channels,))) if w.chance(0.5) else None
    past = weight(w, w.random((batch, channels, size - 1))) if w.chance(0.5) else None
    return w.add(name, x, weights, bias, past, outputs=2, **some(w, activation=w.one("none", "silu", "swish")))


@space("LinearAttention")
def _linear_attention(w: Walk, name: str) -> object:
    if w.floats == np.float64:
        raise Rejected("of float32 and 16-bit floats")
    batch, length, shared = w.number(1, 3), w.number(1, 9), w.number(1, 3)
    heads = shared * w.one(1, 1, 2)
    width, values = (w.one(1, 2, 3, 4, 8) for _ in range(2))
    rule = w.one("linear", "gated", "delta", "gated_delta")
    query = heads_of(w, batch, heads, length, width, True)
    key = weight(w, w.random((batch, length, shared * width)) / np.float32(2 * np.sqrt(width)))
    value = heads_of(w, batch, shared, length, values, True)
    past = weight(w, w.random((batch, shared, width, values))) if w.chance(0.4) else None
    decays = (batch, length, shared * w.one(1, width))
    decay = w.constant(-np.abs(w.random(decays)) / 2) if "gated" in rule else None
    beta = w.constant(w.rng.random((batch, length, w.one(1, shared))).astype(F)) if "delta" in rule else None
    given = {"q_num_heads": heads, "kv_num_heads": shared, "update_rule": rule, **some(w, scale=w.real(0.1, 1))}
    return w.add(name, query, key, value, past, decay, beta, outputs=2, **given)

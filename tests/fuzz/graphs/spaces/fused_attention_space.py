"""Attention as onnxruntime has it: with projections, masks of padding, and keys and values of the past."""

from __future__ import annotations

import numpy as np
from graph import Tensor
from steps import Rejected
from walk import Walk

from spaces.attention_space import heads_of
from spaces.declared import DOMAIN, I32, I64, F, reshaped, some, space, weight


@space("MultiHeadAttention")
def _attention(w: Walk, name: str) -> object:
    batch, heads, queries, keys = w.number(1, 3), w.number(1, 4), w.size(), w.size()
    width, values = (w.one(1, 2, 4, 8, 16) for _ in range(2))
    query, key, value = (
        heads_of(w, batch, heads, length, size, True)
        for length, size in ((queries, width), (keys, width), (keys, values))
    )
    bias = weight(w, w.random((heads * (2 * width + values),))) if w.chance(0.4) else None
    shape = (*(1 if w.chance(0.3) else size for size in (batch, heads)), queries, keys)
    added = weight(w, w.random(shape)) if w.chance(0.4) else None
    given = some(w, scale=w.real(0.1, 1))
    return w.add(name, query, key, value, bias, None, added, domain=DOMAIN, num_heads=heads, **given)


@space("GroupQueryAttention")
def _grouped_attention(w: Walk, name: str) -> object:
    """All sequences of a batch are equally long."""
    if w.floats == np.float64:
        raise Rejected("of float32 and 16-bit floats")
    shared, new, past = w.number(1, 3), w.number(1, 9), w.one(0, w.number(1, 9))
    batch = 1 if past and new > 1 else w.number(1, 3)  # onnxruntime takes no others
    heads, width = shared * w.one(1, 2, 3), w.one(8, 16)
    query = heads_of(w, batch, heads, new, width, True)
    key, value = (heads_of(w, batch, shared, new, width, True) for _ in range(2))
    before = [weight(w, w.random((batch, shared, past, width))) if past else None for _ in range(2)]
    lengths = w.constant(np.full(batch, past + new - 1), np.int32), w.constant(past + new, np.int32)
    given = some(w, scale=w.real(0.1, 1), softcap=w.real(0.5, 5), local_window_size=w.number(1, 8))
    return w.add(
        name,
        *(query, key, value, *before, *lengths),
        outputs=3,
        domain=DOMAIN,
        num_heads=heads,
        kv_num_heads=shared,
        **given,
    )


@space("com.microsoft.Attention", "QAttention")
def _joined_attention(w: Walk, name: str) -> object:
    batch, heads, length, width = w.number(1, 3), w.number(1, 4), w.number(1, 9), w.one(2, 4, 8)
    size = heads * width
    past = w.number(1, 9) if w.chance(0.3) else 0
    before = weight(w, w.random((2, batch, heads, past, width))) if past else None
    mask = None
    if w.chance(0.5):  # the first key is there, for a row of none is the mean of all
        keys = w.rng.integers(0, 2, (batch, past + length))
        keys[:, 0] = 1
        mask = w.constant(keys if past or w.chance(0.5) else w.rng.integers(1, length + 1, batch), I32)
    given = {"num_heads": heads, "unidirectional": w.number(0, 1)} | some(w, scale=w.real(0.1, 1))
    results = 2 if past or w.chance(0.3) else 1
    bias = weight(w, w.random((3 * size,)))
    if name == "com.microsoft.Attention":
        x = heads_of(w, batch, heads, length, width, True)
        weights = weight(w, w.random((size, 3 * size)) / np.float32(np.sqrt(size)))
        return w.add("Attention", x, weights, bias, mask, before, outputs=results, domain=DOMAIN, **given)
    if w.floats != F:
        raise Rejected("of float32 alone")
    x = w.constant(w.random((batch, length, size), np.uint8))
    integers = w.constant(w.rng.integers(-90, 91, (size, 3 * size)).astype(np.int8))
    scales = [w.constant(w.real(low, 4 * low), F) for low in (0.02, 0.002)]
    zeros = w.constant(w.number(0, 9), np.uint8), w.constant(0, np.int8)
    return w.add(name, x, integers, bias, *scales, mask, *zeros, before, outputs=results, domain=DOMAIN, **given)


@space("DecoderMaskedMultiHeadAttention")
def _attention_of_one(w: Walk, name: str) -> object:
    """Of one new token, after those of the past."""
    batch, heads, past, width = w.number(1, 3), w.number(1, 4), w.number(1, 9), w.one(2, 4, 8)
    parts = [heads_of(w, batch, heads, 1, width, True) for _ in range(3)]
    before = [weight(w, w.random((batch, heads, past, width))) for _ in range(2)]
    keys = w.rng.integers(0, 2, (batch, past + 1))
    keys[:, 0] = 1
    mask = w.constant(keys, I32) if w.chance(0.4) else None
    added = weight(w, w.random((1, heads, 1, past + 1))) if w.chance(0.3) else None
    given = {"num_heads": heads} | some(w, scale=w.real(0.1, 1))
    return w.add(name, *parts, mask, added, *before, outputs=3, domain=DOMAIN, **given)


@space("PackedAttention", "PackedMultiHeadAttention")
def _packed_attention(w: Walk, name: str) -> object:
    """Of sequences that lie one after the other, each of which has its own length."""
    heads, width = w.number(1, 4), w.one(2, 4, 8)
    lengths = w.rng.integers(1, 7, w.number(1, 3))
    maximum, count, size = int(lengths.max()), int(lengths.sum()), heads * width
    there = (np.arange(maximum) < lengths[:, None]).reshape(-1)
    offsets = w.constant(np.argsort(~there, kind="stable").reshape(-1, maximum), I32)
    starts = w.constant(np.cumsum([0, *lengths]), I32)
    given = {"num_heads": heads} | some(w, scale=w.real(0.1, 1))

    def elements(shape: tuple[int, ...]) -> Tensor:
        return reshaped(w, shape) or weight(w, w.random(shape))

    if name == "PackedAttention":
        weights = weight(w, w.random((size, 3 * size)) / np.float32(np.sqrt(size)))
        bias = weight(w, w.random((3 * size,)))
        return w.add(name, elements((count, size)), weights, bias, offsets, starts, domain=DOMAIN, **given)
    bias = weight(w, w.random((3 * size,))) if w.chance(0.5) else None
    return w.add(name, *(elements((count, size)) for _ in range(3)), bias, offsets, starts, domain=DOMAIN, **given)


@space("com.microsoft.RotaryEmbedding")
def _rotated(w: Walk, name: str) -> object:
    batch, heads, length, width = w.number(1, 3), w.number(1, 4), w.number(1, 9), w.one(2, 4, 8, 16)
    x = heads_of(w, batch, heads, length, width, w.chance(0.5))
    maximum = length + w.number(0, 5)
    tables = [weight(w, w.random((maximum, width // 2))) for _ in range(2)]
    positions = w.rng.integers(0, maximum, (batch, length)) if w.chance(0.5) else [w.number(0, maximum - length)]
    given = {"num_heads": heads} if x.array.ndim == 3 else {}
    return w.add(
        "RotaryEmbedding", x, w.constant(positions, I64), *tables, domain=DOMAIN, interleaved=w.number(0, 1), **given
    )

"""Attention and what belongs to it in NumPy: the steps that :mod:`simpler` makes of an operator, and whole operators.

Source: ONNX's text of `Attention`, `RotaryEmbedding`, `TensorScatter` and `CausalConvWithState`, of operator set 28.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["OF_ATTENTION"]

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]

_HIDDEN = -1e30
"""The score of a key that a query does not see: as good as the lowest, and no product or difference of it is NaN."""


def _heads(given: Attributes, x: Array) -> Array:
    """`[N, L, heads · E]` as `[N, heads, L, E]`; what has heads already stays."""
    if x.ndim == 4:
        return x
    batch, length, width = x.shape
    return x.reshape(batch, length, given["heads"], width // given["heads"]).transpose(0, 2, 1, 3)


def _merged(_given: Attributes, x: Array) -> Array:
    """`[N, heads, L, E]` as `[N, L, heads · E]`."""
    batch, heads, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)


def _shared(x: Array, heads: int) -> Array:
    """The heads of keys or values, each as often as queries share it."""
    return np.repeat(x, heads // x.shape[1], axis=1)


def _products(given: Attributes, query: Array, key: Array) -> Array:
    scale = given.get("scale") or 1 / math.sqrt(query.shape[-1])
    return np.asarray(scale * np.matmul(query, _shared(key, query.shape[1]).swapaxes(-1, -2)))


def _capped(given: Attributes, scores: Array) -> Array:
    cap = given["softcap"]
    return np.asarray(cap * np.tanh(scores / cap))


def _with_mask(_given: Attributes, scores: Array, mask: Array) -> Array:
    """The scores with a mask of numbers, which are added to them; one of booleans adds nothing."""
    if mask.dtype == bool:
        return scores
    found = scores.copy()
    found[..., : mask.shape[-1]] += mask
    return found


def _seen(
    given: Attributes, scores: Array, mask: Array | None = None, past: Array | None = None, filled: Array | None = None
) -> Array:
    """The scores, of what is seen; a mask says it by booleans, or by its length alone."""
    batch, _, queries, keys = scores.shape
    seen = np.ones(scores.shape, bool)
    if mask is not None:
        seen[..., mask.shape[-1] :] = False
        if mask.dtype == bool:
            seen[..., : mask.shape[-1]] &= mask
    before = np.full(batch, 0 if past is None else past.shape[2])
    if filled is not None:
        seen &= np.arange(keys) < filled.reshape(-1, 1, 1, 1)
        before = filled - queries
    apart = np.arange(keys) - np.arange(queries)[:, None] - before.reshape(-1, 1, 1, 1)
    if given.get("is_causal"):
        seen &= apart <= 0
    left, right = given.get("left_window_size", -1), given.get("right_window_size", -1)
    seen &= (left < 0) | (apart >= -left)
    seen &= (right < 0) | (apart <= right)
    return np.where(seen, scores, _HIDDEN)


def _weights(_given: Attributes, scores: Array) -> Array:
    """The softmax of each row; zeros for one that sees nothing."""
    parts = np.exp(scores - scores.max(-1, keepdims=True, initial=_HIDDEN))
    parts[scores <= _HIDDEN / 2] = 0
    return np.asarray(parts / np.maximum(parts.sum(-1, keepdims=True), 1e-300))


def _values(_given: Attributes, weights: Array, value: Array) -> Array:
    return np.asarray(np.matmul(weights, _shared(value, weights.shape[1])))


def _rotary(given: Attributes, x: Array, cos: Array, sin: Array, positions: Array | None = None) -> Array:
    tokens = x.transpose(0, 2, 1, 3) if x.ndim == 4 else x.reshape(*x.shape[:2], given["num_heads"], -1)
    rotated = given.get("rotary_embedding_dim") or tokens.shape[-1]
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    cos, sin = cos[:, :, None], sin[:, :, None]
    found = tokens.copy()
    first, second = (
        (slice(0, rotated, 2), slice(1, rotated, 2))
        if given.get("interleaved")
        else (slice(0, rotated // 2), slice(rotated // 2, rotated))
    )
    found[..., first] = cos * tokens[..., first] - sin * tokens[..., second]
    found[..., second] = sin * tokens[..., first] + cos * tokens[..., second]
    return found.transpose(0, 2, 1, 3) if x.ndim == 4 else found.reshape(x.shape)


def _written(given: Attributes, cache: Array, update: Array, starts: Array | None = None) -> Array:
    axis = given.get("axis", -2) % cache.ndim
    found = np.moveaxis(cache.copy(), axis, 1)
    size, new = found.shape[1], np.moveaxis(update, axis, 1)
    for element, start in enumerate(np.zeros(len(cache), int) if starts is None else starts):
        positions = start + np.arange(new.shape[1])
        found[element, positions % size if given.get("mode") == "circular" else positions] = new[element]
    return np.moveaxis(found, 1, axis)


def _causal_elements(_given: Attributes, x: Array, weight: Array, past: Array | None = None) -> Array:
    """What came before the first element, and the elements."""
    before = np.zeros((*x.shape[:2], weight.shape[-1] - 1)) if past is None else past
    return np.concatenate([before, x], -1)


def _causal_sums(_given: Attributes, elements: Array, weight: Array, bias: Array | None = None) -> Array:
    size = weight.shape[-1]
    windows = np.lib.stride_tricks.sliding_window_view(elements, size, -1)
    found = (windows * weight[:, 0][:, None, :]).sum(-1)
    return np.asarray(found if bias is None else found + bias[:, None])


def _causal_state(_given: Attributes, elements: Array, weight: Array) -> Array:
    return np.asarray(elements[..., elements.shape[-1] - weight.shape[-1] + 1 :])


def _linear_attention(
    given: Attributes,
    query: Array,
    key: Array,
    value: Array,
    past: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
) -> tuple[Array, Array]:
    """The outputs for all tokens, and the last state."""
    heads, shared = given["q_num_heads"], given["kv_num_heads"]
    q, k, v = (_heads({"heads": count}, x) for x, count in ((query, heads), (key, shared), (value, shared)))
    batch, length, size = len(query), query.shape[1], q.shape[-1]
    state = np.zeros((batch, shared, size, v.shape[-1])) if past is None else past
    kept = np.ones((1, 1, length, 1)) if decay is None else np.exp(_heads({"heads": shared}, decay))
    rate = np.ones((1, 1, length, 1)) if beta is None else _heads({"heads": beta.shape[-1]}, beta)
    grouped = q.reshape(batch, shared, heads // shared, length, size) * (given.get("scale") or size**-0.5)
    results = []
    for token in range(length):
        state = state * kept[:, :, token, :, None]
        known = np.matmul(k[:, :, token, None], state)[:, :, 0] if "delta" in given["update_rule"] else 0.0
        gain = rate[:, :, token] * (v[:, :, token] - known)
        state = state + k[:, :, token, :, None] * gain[:, :, None]
        results.append(np.matmul(grouped[..., token, :], state).reshape(batch, -1))
    return np.stack(results, 1), state


OF_ATTENTION: Mapping[str, Callable[..., Any]] = {
    "AttentionCap": _capped,
    "AttentionHeads": _heads,
    "AttentionMask": _with_mask,
    "AttentionMerged": _merged,
    "AttentionProducts": _products,
    "AttentionSeen": _seen,
    "AttentionValues": _values,
    "AttentionWeights": _weights,
    "CausalItems": _causal_elements,
    "CausalState": _causal_state,
    "CausalSums": _causal_sums,
    "LinearAttention": _linear_attention,
    "RotaryEmbedding": _rotary,
    "TensorScatter": _written,
}
"""By the operators' names; those that are none of ONNX are the steps of :mod:`simpler`."""

"""Brings stored tensors into the layout that blocks read: a tensor for each product, heads in the order of rotation."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.decoder.description import Attention, Decoder, FeedForward
from nnefc.frontends.decoder.weights import Weights
from nnefc.operators.base import Array

__all__ = ["arrange", "order_of_pairs"]


def arrange(weights: Weights, decoder: Decoder) -> None:
    """Splits tensors that hold several matrices, and orders the rows of heads; nothing is read yet."""
    for n, layer in enumerate(decoder.layers):
        _split_attention(weights, f"blk.{n}.", layer.attention)
        _order_heads(weights, f"blk.{n}.", layer.attention)
        if isinstance(layer.feed_forward, FeedForward) and layer.feed_forward.is_gated:
            _split_gate(weights, f"blk.{n}.")


def _split_attention(weights: Weights, prefix: str, attention: Attention) -> None:
    """Queries, keys and values of one tensor, one after the other."""
    queries, keys = attention.heads * attention.width, attention.key_heads * attention.width
    for end in ("weight", "bias"):
        joined = weights.tensors.get(f"{prefix}attn_qkv.{end}")
        if joined is None or joined.shape[0] != queries + 2 * keys:
            continue
        del weights.tensors[f"{prefix}attn_qkv.{end}"]
        for part, start, count in (("q", 0, queries), ("k", queries, keys), ("v", queries + keys, keys)):
            weights.tensors[f"{prefix}attn_{part}.{end}"] = joined.rows(np.arange(start, start + count))


def _order_heads(weights: Weights, prefix: str, attention: Attention) -> None:
    if attention.rotation is None:
        return
    order = order_of_pairs(attention.width, attention.rotated, attention.is_interleaved)
    if np.array_equal(order, np.arange(attention.width)):
        return
    for part, heads in (("q", attention.heads), ("k", attention.key_heads)):
        rows = np.arange(heads * attention.width).reshape(heads, attention.width)[:, order].reshape(-1)
        for name in (f"{prefix}attn_{part}.weight", f"{prefix}attn_{part}.bias", f"{prefix}attn_{part}_norm.weight"):
            found = weights.tensors.get(name)
            if found is not None and found.final_shape[0] in (len(rows), len(order)):
                own = rows if found.final_shape[0] == len(rows) else order
                weights.tensors[name] = found.rows(own)


def _split_gate(weights: Weights, prefix: str) -> None:
    """A gate that lies before what it is multiplied with."""
    both = weights.tensors.get(f"{prefix}ffn_up.weight")
    if both is None or f"{prefix}ffn_gate.weight" in weights or both.shape[0] % 2:
        return
    inner = both.shape[0] // 2
    weights.tensors[f"{prefix}ffn_gate.weight"] = both.rows(np.arange(inner))
    weights.tensors[f"{prefix}ffn_up.weight"] = both.rows(np.arange(inner, 2 * inner))


def order_of_pairs(width: int, rotated: int, is_interleaved: bool) -> Array:
    """Returns the elements of a head in the order in which each is rotated with the one half a head behind it.

    Elements that are not rotated come last in each half, as pairs with the angle 0.
    """
    elements, half = np.arange(width), rotated // 2
    own, others = elements[:rotated], elements[rotated:]
    first, second = (own[::2], own[1::2]) if is_interleaved else (own[:half], own[half:])
    return np.concatenate([first, others[: len(others) // 2], second, others[len(others) // 2 :]])

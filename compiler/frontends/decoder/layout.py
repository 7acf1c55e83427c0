"""Brings stored tensors into the layout that blocks read: a tensor for each product, heads in the order of rotation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nnefc.frontends.decoder.description import (
    AlternatingUpdates,
    Attention,
    Decoder,
    Experts,
    FeedForward,
    LatentAttention,
    ShortConvolution,
    StateSpace,
)
from nnefc.frontends.decoder.weights import JoinedTensor, StoredTensor, Weights, in_order_of_columns
from nnefc.operators.base import Array

__all__ = ["arrange", "order_of_pairs"]


def arrange(weights: Weights, decoder: Decoder) -> None:
    """Splits tensors that hold several matrices, and orders the rows of heads; nothing is read yet."""
    if decoder.updates is not None:
        _split_updates(weights, decoder.updates, decoder.size)
    for n, layer in enumerate(decoder.layers):
        prefix = f"blk.{n}."
        match layer.mixer:
            case Attention() if layer.mixer.keys_of is not None:
                for name in ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight"):
                    weights.tensors.pop(f"{prefix}{name}", None)  # which files have for layers that do not use them
                _order_heads(weights, prefix, layer.mixer)
            case Attention():
                _split_attention(weights, prefix, layer.mixer)
                _order_heads(weights, prefix, layer.mixer)
            case LatentAttention():
                _split_latent(weights, prefix, layer.mixer)
            case ShortConvolution():
                _split_rows(weights, f"{prefix}shortconv.in_proj", _thirds(weights, prefix, decoder.size))
                _flatten(weights, f"{prefix}shortconv.conv.weight", (decoder.size, layer.mixer.taps))
            case StateSpace():
                _split_state_space(weights, prefix, layer.mixer)
        if isinstance(layer.feed_forward, FeedForward) and layer.feed_forward.is_gated:
            _split_gate(weights, prefix)
        if isinstance(layer.feed_forward, Experts):
            _split_gate(weights, prefix, "_shexp")
            _flatten_experts(weights, prefix)


def _split_updates(weights: Weights, form: AlternatingUpdates, size: int) -> None:
    """Projections of the rows of positions: into them by one product, out of each by its own."""
    for name in ("altup_proj.weight", "altup_unembd_proj.weight"):
        found = weights.tensors.get(name)
        if found is not None and found.order is None and found.shape == (form.count - 1, size, size):
            weights.tensors[name] = replace(found, shape=((form.count - 1) * size, size))
    parts = _ranges("altup_unembd_proj.", {str(n): size for n in range(form.count - 1)})
    _split_rows(weights, "altup_unembd_proj", parts)


def _split_rows(weights: Weights, name: str, parts: Mapping[str, Array]) -> None:
    """Makes a matrix several ones, by the names and the rows of each; one that is not there stays so."""
    for end in ("weight", "bias"):
        joined = weights.tensors.get(f"{name}.{end}")
        rows = sum(len(own) for own in parts.values())
        if joined is None or joined.final_shape[:1] != (rows,):
            continue
        del weights.tensors[f"{name}.{end}"]
        for part, own in parts.items():
            weights.tensors[f"{part}.{end}"] = joined.rows(own)


def _ranges(prefix: str, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Returns rows that follow each other, by the names of what they are."""
    found, start = {}, 0
    for name, size in sizes.items():
        found[f"{prefix}{name}"] = np.arange(start, start + size)
        start += size
    return found


def _thirds(weights: Weights, prefix: str, size: int) -> dict[str, Array]:
    return _ranges(f"{prefix}shortconv.", {"b": size, "c": size, "x": size})


def _flatten(weights: Weights, name: str, shape: tuple[int, ...]) -> None:
    """Leaves out axes of size 1, which formats have in different positions."""
    found = weights.tensors.get(name)
    if found is not None and found.order is None and [n for n in found.shape if n > 1] == [n for n in shape if n > 1]:
        weights.tensors[name] = replace(found, shape=shape)


def _flatten_experts(weights: Weights, prefix: str) -> None:
    """Experts' matrices below each other."""
    for part in ("gate", "up", "down"):
        name = f"{prefix}ffn_{part}_exps.weight"
        found = weights.tensors.get(name)
        if found is not None and len(found.shape) == 3 and found.order is None:
            count, rows, columns = found.shape
            weights.tensors[name] = replace(found, shape=(count * rows, columns))


def _split_state_space(weights: Weights, prefix: str, form: StateSpace) -> None:
    inner, channels = form.heads * form.width, form.heads * form.width + 2 * form.groups * form.size
    parts = _ranges(prefix, {"ssm_z": inner, "ssm_xbc": channels, "ssm_time": form.heads})
    _split_rows(weights, f"{prefix}ssm_in", parts)
    _flatten(weights, f"{prefix}ssm_conv1d.weight", (channels, form.taps))
    for name in ("ssm_a", "ssm_d"):
        _flatten(weights, f"{prefix}{name}", (form.heads,))
    norm = weights.tensors.get(f"{prefix}ssm_norm.weight")
    if norm is not None and norm.order is None and np.prod(norm.shape) == inner:
        weights.tensors[f"{prefix}ssm_norm.weight"] = replace(norm, shape=(inner,))


def _split_latent(weights: Weights, prefix: str, form: LatentAttention) -> None:
    """Queries and keys without positions, and those with them; the matrices of keys and of values, by heads."""
    width = form.unrotated + form.rotated
    rows = np.arange(form.heads * width).reshape(form.heads, width)
    order = order_of_pairs(form.rotated, form.rotated, form.is_interleaved)
    apart = {
        f"{prefix}attn_q_nope": rows[:, : form.unrotated].reshape(-1),
        f"{prefix}attn_q_rope": rows[:, form.unrotated :][:, order].reshape(-1),
    }
    _split_rows(weights, f"{prefix}attn_q_b" if form.query_rank else f"{prefix}attn_q", apart)
    latent = {f"{prefix}attn_kv_c": np.arange(form.rank), f"{prefix}attn_k_rope": form.rank + order}
    _split_rows(weights, f"{prefix}attn_kv_a_mqa", latent)
    both = weights.tensors.get(f"{prefix}attn_kv_b.weight")
    per = form.unrotated + form.value
    if both is not None and both.final_shape == (form.heads * per, form.rank):
        del weights.tensors[f"{prefix}attn_kv_b.weight"]
        lines = np.arange(form.heads * per).reshape(form.heads, per)
        keys, values = (both.rows(own.reshape(-1)) for own in (lines[:, : form.unrotated], lines[:, form.unrotated :]))
        weights.tensors[f"{prefix}attn_k_b.weight"] = _by_heads(keys, form.heads, is_transposed=True)
        weights.tensors[f"{prefix}attn_v_b.weight"] = _by_heads(values, form.heads)
    for part in ("attn_k_b", "attn_v_b"):
        found = weights.tensors.get(f"{prefix}{part}.weight")
        if found is not None and len(found.shape) == 3:
            weights.tensors[f"{prefix}{part}.weight"] = _by_heads(found, form.heads)


def _by_heads(tensor: StoredTensor, heads: int, is_transposed: bool = False) -> JoinedTensor:
    """Matrices of heads below each other, or side by side along a first axis, as floats `[1, heads, rows, columns]`."""
    rows, columns = int(np.prod(tensor.final_shape[:-1])) // heads, tensor.final_shape[-1]
    shape = (1, heads, columns, rows) if is_transposed else (1, heads, rows, columns)

    def join() -> Array:
        found = in_order_of_columns(tensor).reshape(1, heads, rows, columns)
        return np.ascontiguousarray(found.transpose(0, 1, 3, 2)) if is_transposed else found

    return JoinedTensor(tensor.type, shape, tensor.data[:0], parts=(tensor,), join=join)


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


def _split_gate(weights: Weights, prefix: str, suffix: str = "") -> None:
    """A gate that lies before what it is multiplied with."""
    name, gate = f"{prefix}ffn_up{suffix}", f"{prefix}ffn_gate{suffix}"
    both = weights.tensors.get(f"{name}.weight")
    if both is not None and f"{gate}.weight" not in weights and both.final_shape and both.final_shape[0] % 2 == 0:
        inner = both.final_shape[0] // 2
        _split_rows(weights, name, {gate: np.arange(inner), name: np.arange(inner, 2 * inner)})


def order_of_pairs(width: int, rotated: int, is_interleaved: bool) -> Array:
    """Returns the elements of a head in the order in which each is rotated with the one half a head behind it.

    Elements that are not rotated come last in each half, as pairs with the angle 0.
    """
    elements, half = np.arange(width), rotated // 2
    own, others = elements[:rotated], elements[rotated:]
    first, second = (own[::2], own[1::2]) if is_interleaved else (own[:half], own[half:])
    return np.concatenate([first, others[: len(others) // 2], second, others[len(others) // 2 :]])

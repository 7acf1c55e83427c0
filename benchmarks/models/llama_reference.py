"""The logits of a model of llama's architecture in a file of GGUF, in float64 by NumPy: what engines are compared with.

Weights are those of the file, dequantized by the package gguf; nothing is rounded after that.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader
from gguf.quants import dequantize

__all__ = ["reference_logits"]

_Array = npt.NDArray[np.float64]


class _File:
    """Metadata and tensors of a file."""

    def __init__(self, path: Path) -> None:
        self._reader = GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def number(self, key: str, default: float | None = None) -> float:
        field = self._reader.fields.get(f"llama.{key}")
        if field is None and default is not None:
            return default
        assert field is not None, key
        return float(field.contents())

    def has(self, name: str) -> bool:
        return f"{name}.weight" in self._tensors

    def rows(self, name: str, which: list[int]) -> _Array:
        """Some rows of a matrix."""
        tensor = self._tensors[f"{name}.weight"]
        return dequantize(tensor.data[which], tensor.tensor_type).astype(np.float64)

    def tensor(self, name: str) -> _Array:
        tensor = self._tensors[f"{name}.weight"]
        return dequantize(tensor.data, tensor.tensor_type).astype(np.float64)


def reference_logits(path: Path, tokens: list[int]) -> _Array:
    """The logits after the last of some tokens, `[words]`."""
    file = _File(path)
    heads, groups = int(file.number("attention.head_count")), int(file.number("attention.head_count_kv"))
    epsilon, base = file.number("attention.layer_norm_rms_epsilon"), file.number("rope.freq_base", 1e4)
    x = file.rows("token_embd", tokens)
    for layer in range(int(file.number("block_count"))):
        part = f"blk.{layer}."
        normed = _normalized(x, file.tensor(f"{part}attn_norm"), epsilon)
        q, k, v = (
            (normed @ file.tensor(f"{part}attn_{name}").T).reshape(len(tokens), count, -1)
            for name, count in (("q", heads), ("k", groups), ("v", groups))
        )
        x = x + _attention(_rotated(q, base), _rotated(k, base), v) @ file.tensor(f"{part}attn_output").T
        normed = _normalized(x, file.tensor(f"{part}ffn_norm"), epsilon)
        gate, up = (normed @ file.tensor(f"{part}ffn_{name}").T for name in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ file.tensor(f"{part}ffn_down").T
    last = _normalized(x[-1], file.tensor("output_norm"), epsilon)
    return file.tensor("output" if file.has("output") else "token_embd") @ last


def _normalized(x: _Array, scale: _Array, epsilon: float) -> _Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * scale


def _rotated(x: _Array, base: float) -> _Array:
    """Pairs of neighbours rotated by their position: of `[tokens, heads, size]`."""
    angles = np.arange(len(x))[:, None, None] * base ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    even, odd = x[..., 0::2], x[..., 1::2]
    rotated = even * np.cos(angles) - odd * np.sin(angles), even * np.sin(angles) + odd * np.cos(angles)
    return np.stack(rotated, axis=-1).reshape(x.shape)


def _attention(q: _Array, k: _Array, v: _Array) -> _Array:
    """Causal attention; several heads of queries share one of keys and values."""
    shared = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, shared, axis=1), np.repeat(v, shared, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, v).reshape(len(q), -1)

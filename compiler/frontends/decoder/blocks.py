"""Builds the blocks of a layer: norm, attention, feed-forward layers. Each function writes one fragment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnefc.frontends.decoder.description import Attention, FeedForward, Norm
from nnefc.frontends.decoder.document import Document, Literal, Scope, Tensor
from nnefc.frontends.decoder.weights import JoinedTensor, StoredTensor, Weights, float_tensor, shown
from nnefc.support.diagnostics import CompileError

__all__ = [
    "Kept",
    "Parts",
    "Positions",
    "activated",
    "attended",
    "attended_to",
    "fed",
    "heads_apart",
    "heads_joined",
    "key_of",
    "matrix_product",
    "normalized",
    "unit",
    "value_of",
]


@dataclass(frozen=True)
class Kept:
    """The capacity of the caches of keys and values, for each sequence.

    Attributes:
        context: the maximum number of positions.
        rewind: how many of the last ones it can forget where queries see a window.
        storage: how keys and values are kept.
    """

    context: int = 0
    rewind: int = 0
    storage: str = "f32"

    def options(self, window: int = 0) -> dict[str, Any]:
        """Returns the options of an attention whose queries see `window` positions; 0 for all.

        Caches of a window are rings where these are shorter than the context.
        """
        held = window - 1 + self.rewind if window else 0
        is_ring = 0 < held < self.context
        return ({} if self.storage == "f32" else {"storage": self.storage}) | ({"kept": held} if is_ring else {})


@dataclass(frozen=True)
class Positions:
    """The quantities that all blocks of a run share.

    Attributes:
        before: how many positions each sequence had before; None where none is kept.
        rows: the number of sequences.
        flat: the number of rows, those of all sequences.
        angles: cosines and sines by the names of rotations.
        lengths: how many tokens each sequence, or each text, has in this run.
        kept: what caches hold.
    """

    before: Tensor | None
    rows: Literal
    flat: Literal
    angles: dict[str, tuple[Tensor, Tensor]]
    lengths: Tensor | None = None
    kept: Kept = Kept()


class Parts:
    """The trained values of a layer, or of what is outside of layers, as tensors of the document."""

    def __init__(self, document: Document, weights: Weights, used: dict[str, StoredTensor], prefix: str = "") -> None:
        self._document, self._weights, self._used, self._prefix = document, weights, used, prefix

    def has(self, name: str) -> bool:
        """Returns whether there is such a tensor."""
        return self._prefix + name in self._weights

    def matrix(self, name: str, shape: tuple[int, ...], hint: str, is_factor: bool = False) -> Tensor:
        """Returns the tensor with a name, which has this shape; vectors get a first axis.

        Raises:
            CompileError: there is none, it has another shape, or its columns are in an order of their own, and it is no
                factor, whose operand can be put into that order.
        """
        label = self._prefix + name
        found = self._used[label] = self._weights.get(label, shape)
        if not is_factor and isinstance(found, JoinedTensor) and found.columns is not None:
            raise CompileError(
                f"'{self._weights.source}': the tensor '{shown(self._weights.original_name(label))}' is quantized in "
                "the order of activations, which is supported in products alone"
            )
        size = found.final_shape
        return self._document.variable(label, size if len(size) > 1 else (1, *size), hint)

    def optional(self, name: str, shape: tuple[int, ...], hint: str) -> Tensor | None:
        """Returns the tensor with a name if there is one."""
        return self.matrix(name, shape, hint) if self.has(name) else None

    def rows_of(self, name: str) -> int:
        """Returns how many rows a matrix has, which nothing else says.

        Raises:
            CompileError: there is no such tensor.
        """
        label = self._prefix + name
        found = self._weights.tensors.get(label)
        return self._weights.get(label, (0,)).final_shape[0] if found is None else found.final_shape[0]

    def columns_of(self, name: str) -> Tensor | None:
        """Returns which element of a row each column of a matrix is multiplied with; None for all in their order."""
        found = self._weights.tensors.get(self._prefix + name)
        if not isinstance(found, JoinedTensor) or found.columns is None:
            return None
        label = f"{self._prefix}{name.removesuffix('.weight')}.columns"
        self._used[label] = float_tensor(found.columns.astype(np.float32))
        return self._document.variable(label, (1, len(found.columns)), "columns")

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor that there is."""
        return self._weights.tensors[self._prefix + name].final_shape


# Norms and products


def normalized(scope: Scope, x: Tensor, norm: Norm, parts: Parts, name: str, size: int) -> Tensor:
    """Adds the normalization of rows of `size` elements."""
    weight = parts.matrix(f"{name}.weight", (size,), "weight")
    bias = parts.optional(f"{name}.bias", (size,), "bias") if norm.centered else None

    def build(body: Scope, x: Tensor) -> Tensor:
        y = body.infix("*", unit(body, x, norm, 1), weight)
        return y if bias is None else body.infix("+", y, bias)

    return scope.block("norm", build, x)


def unit(body: Scope, x: Tensor, norm: Norm, axis: int) -> Tensor:
    """Adds what makes the mean square of an axis one."""
    if not norm.centered:
        return body.call("tract_core_rms_norm", x, axis=axis, eps=np.float32(norm.epsilon))
    mean, variance = body.calls("moments", ["mean", "variance"], ["scalar"] * 2, x, axes=[axis])
    root = body.call("rsqrt", body.infix("+", variance, np.float32(norm.epsilon)))
    return body.infix("*", body.infix("-", x, mean), root)


def matrix_product(
    scope: Scope, x: Tensor, parts: Parts, name: str, shape: tuple[int, int], hint: str, bias: str | None = None
) -> Tensor:
    """Adds `x · wᵀ`, and a bias if there is one."""
    weight = parts.matrix(f"{name}.weight", shape, hint, is_factor=True)
    columns = parts.columns_of(f"{name}.weight")
    added = parts.optional(bias or f"{name}.bias", shape[:1], f"{hint}_bias")
    if columns is not None:
        order = scope.call("squeeze", columns, axes=[0])
        order = scope.call("tract_core_cast", order, to="i64", content="integer")
        x = scope.call("tract_core_gather", x, order, axis=1, name="ordered")
    made = scope.call("matmul", x, weight, transposeB=True)
    return made if added is None else scope.infix("+", made, added)


# Attention


def attended(scope: Scope, x: Tensor, form: Attention, parts: Parts, at: Positions, size: int) -> Tensor:
    """Adds attention of rows to all positions before, which a session keeps, or to those of a text alone."""

    def build(body: Scope, x: Tensor) -> Tensor:
        key, value = key_of(body, x, form, parts, at, size), value_of(body, x, form, parts, at, size)
        return _found(body, x, key, value, form, parts, at, size)

    return scope.block("attention", build, x)


def attended_to(
    scope: Scope, x: Tensor, key: Tensor, value: Tensor, form: Attention, parts: Parts, at: Positions, size: int
) -> Tensor:
    """Adds attention of rows to keys and values that are given; a session keeps equal ones once."""

    def build(body: Scope, x: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return _found(body, x, key, value, form, parts, at, size)

    return scope.block("attention", build, x, key, value)


def key_of(body: Scope, x: Tensor, form: Attention, parts: Parts, at: Positions, size: int) -> Tensor:
    """Adds the keys of rows, `[B, G, S, E]`."""
    return _head_part(body, x, form, parts, at, size, "k")


def value_of(body: Scope, x: Tensor, form: Attention, parts: Parts, at: Positions, size: int) -> Tensor:
    """Adds the values of rows, `[B, G, S, E]`."""
    made = heads_apart(body, _projected(body, x, form, parts, size, "v"), form.key_heads, form.width, at)
    return unit(body, made, form.norm, 3) if form.has_value_norm and form.norm is not None else made


def _found(
    body: Scope, x: Tensor, key: Tensor, value: Tensor, form: Attention, parts: Parts, at: Positions, size: int
) -> Tensor:
    """Adds what queries find among keys and values, as rows."""
    query = _head_part(body, x, form, parts, at, size, "q")
    options: dict[str, Any] = {"window": form.window} | {
        name: number for name, number in (("scale", form.scale), ("softcap", form.cap)) if number
    }
    if form.has_sinks:
        options["sink"] = parts.matrix("attn_sinks.weight", (form.heads,), "sinks")
    if at.before is None:
        operands = ("nnefc_attention", query, key, value, at.lengths)
        options["is_causal"] = form.is_causal
    else:
        operands = ("nnefc_cached_attention", query, key, value, at.before)
        options |= at.kept.options(form.window)
    found = body.call(*operands, name="found", **options)
    rows = heads_joined(body, found, form.heads, form.width, at)
    return matrix_product(body, rows, parts, "attn_output", (size, form.heads * form.width), "o")


def _projected(body: Scope, x: Tensor, form: Attention, parts: Parts, size: int, part: str) -> Tensor:
    heads = form.heads if part == "q" else form.key_heads
    return matrix_product(body, x, parts, f"attn_{part}", (heads * form.width, size), part)


def heads_apart(body: Scope, x: Tensor, count: int, width: int, at: Positions) -> Tensor:
    """Adds a view of `[B · S, H · E]` as `[B, H, S, E]`."""
    apart = body.call("reshape", x, shape=[at.rows, Literal("S"), count, width])
    return body.call("transpose", apart, axes=[0, 2, 1, 3])


def heads_joined(body: Scope, x: Tensor, count: int, width: int, at: Positions) -> Tensor:
    """Adds a view of `[B, H, S, E]` as `[B · S, H · E]`."""
    joined = body.call("transpose", x, axes=[0, 2, 1, 3])
    return body.call("reshape", joined, shape=[at.flat, count * width])


def _head_part(body: Scope, x: Tensor, form: Attention, parts: Parts, at: Positions, size: int, part: str) -> Tensor:
    """Queries or keys: normalized, and rotated by their positions."""
    count = form.heads if part == "q" else form.key_heads
    made, name = _projected(body, x, form, parts, size, part), f"attn_{part}_norm"
    is_whole = (
        form.norm is not None and parts.has(f"{name}.weight") and parts.shape_of(f"{name}.weight") != (form.width,)
    )
    if form.norm is not None and is_whole:
        weight = parts.matrix(f"{name}.weight", (count * form.width,), f"{part}_norm")
        made = body.infix("*", unit(body, made, form.norm, 1), weight)
    made = heads_apart(body, made, count, form.width, at)
    if form.norm is not None and not is_whole:
        weight = parts.matrix(f"{name}.weight", (form.width,), f"{part}_norm")
        made = body.infix("*", unit(body, made, form.norm, 3), body.call("unsqueeze", weight, axes=[0, 1]))
    if form.rotation is None:
        return made
    return body.call("tract_transformers_apply_rope", made, *at.angles[form.rotation])


# Feed-forward layers


def activated(body: Scope, x: Tensor, activation: str) -> Tensor:
    """Adds an activation; `gelu` is that with the error function."""
    if activation != "gelu":
        return body.call(activation, x)
    grown = body.infix("+", body.call("tract_core_erf", body.infix("*", x, math.sqrt(0.5))), 1.0)
    return body.infix("*", body.infix("*", x, 0.5), grown)


def _cut_off(body: Scope, x: Tensor, cutoff: float) -> Tensor:
    """Adds what is left of each row above its mean and so many standard deviations."""
    mean, variance = body.calls("moments", ["mean", "variance"], ["scalar"] * 2, x, axes=[1])
    least = body.infix("+", mean, body.infix("*", body.call("sqrt", variance), np.float32(cutoff)))
    return body.call("relu", body.infix("-", x, least))


def fed(scope: Scope, x: Tensor, form: FeedForward, parts: Parts, size: int, suffix: str = "") -> Tensor:
    """Adds a feed-forward layer."""
    inner = parts.rows_of(f"ffn_up{suffix}.weight")

    def build(body: Scope, x: Tensor) -> Tensor:
        up = matrix_product(body, x, parts, f"ffn_up{suffix}", (inner, size), "up")
        if form.is_gated:
            gate = matrix_product(body, x, parts, f"ffn_gate{suffix}", (inner, size), "gate")
            gate = gate if form.cutoff is None else _cut_off(body, gate, form.cutoff)
            made = body.infix("*", activated(body, gate, form.activation), up)
        else:
            made = activated(body, up, form.activation)
        return matrix_product(body, made, parts, f"ffn_down{suffix}", (size, inner), "down")

    return scope.block("feed_forward", build, x)

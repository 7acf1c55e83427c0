"""Builds the blocks of a layer: norm, attention, feed-forward layers, experts. Each function writes one fragment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnefc.frontends.decoder.description import Attention, Experts, FeedForward, Norm
from nnefc.frontends.decoder.document import Document, Literal, Scope, Tensor
from nnefc.frontends.decoder.weights import StoredTensor, Weights

__all__ = ["Parts", "Positions", "activated", "attended", "fed", "matrix_product", "mixed", "normalized"]


@dataclass(frozen=True)
class Positions:
    """What the blocks of a run share.

    Attributes:
        before: how many positions each sequence had before; None where none is kept.
        rows: the number of sequences.
        flat: the number of rows, those of all sequences.
        angles: cosines and sines by the names of rotations.
        lengths: of texts none of which is kept.
        storage: how keys and values are kept.
    """

    before: Tensor | None
    rows: Literal
    flat: Literal
    angles: dict[str, tuple[Tensor, Tensor]]
    lengths: Tensor | None = None
    storage: str = "f32"


class Parts:
    """The trained values of a layer, or of what is outside of layers, as tensors of the document."""

    def __init__(self, document: Document, weights: Weights, used: dict[str, StoredTensor], prefix: str = "") -> None:
        self._document, self._weights, self._used, self._prefix = document, weights, used, prefix

    def has(self, name: str) -> bool:
        """Returns whether there is such a tensor."""
        return self._prefix + name in self._weights

    def matrix(self, name: str, shape: tuple[int, ...], hint: str) -> Tensor:
        """Returns the tensor with a name, which has this shape; vectors get a first axis."""
        label = self._prefix + name
        found = self._used[label] = self._weights.get(label, shape)
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

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor that there is."""
        return self._weights.tensors[self._prefix + name].final_shape


# Norms and products


def normalized(scope: Scope, x: Tensor, norm: Norm, parts: Parts, name: str, size: int) -> Tensor:
    """Adds the normalization of rows of `size` elements."""
    weight = parts.matrix(f"{name}.weight", (size,), "weight")
    bias = parts.optional(f"{name}.bias", (size,), "bias") if norm.centered else None

    def build(body: Scope, x: Tensor) -> Tensor:
        y = body.infix("*", _unit(body, x, norm, 1), weight)
        return y if bias is None else body.infix("+", y, bias)

    return scope.block("norm", build, x)


def _unit(body: Scope, x: Tensor, norm: Norm, axis: int) -> Tensor:
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
    weight = parts.matrix(f"{name}.weight", shape, hint)
    added = parts.optional(bias or f"{name}.bias", shape[:1], f"{hint}_bias")
    made = scope.call("matmul", x, weight, transposeB=True)
    return made if added is None else scope.infix("+", made, added)


# Attention


def attended(scope: Scope, x: Tensor, form: Attention, parts: Parts, at: Positions, size: int) -> Tensor:
    """Adds attention of rows to all positions before, which a session keeps, or to those of a text alone."""

    def build(body: Scope, x: Tensor) -> Tensor:
        query, key = (_head_part(body, x, form, parts, at, size, part) for part in "qk")
        value = _heads(body, _projected(body, x, form, parts, size, "v"), form.key_heads, form, at)
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
            options |= {} if at.storage == "f32" else {"storage": at.storage}
        found = body.call(*operands, name="found", **options)
        joined = body.call("transpose", found, axes=[0, 2, 1, 3])
        rows = body.call("reshape", joined, shape=[at.flat, form.heads * form.width])
        return matrix_product(body, rows, parts, "attn_output", (size, form.heads * form.width), "o")

    return scope.block("attention", build, x)


def _projected(body: Scope, x: Tensor, form: Attention, parts: Parts, size: int, part: str) -> Tensor:
    heads = form.heads if part == "q" else form.key_heads
    return matrix_product(body, x, parts, f"attn_{part}", (heads * form.width, size), part)


def _heads(body: Scope, x: Tensor, count: int, form: Attention, at: Positions) -> Tensor:
    """`[B · S, H · E]` as `[B, H, S, E]`."""
    apart = body.call("reshape", x, shape=[at.rows, Literal("S"), count, form.width])
    return body.call("transpose", apart, axes=[0, 2, 1, 3])


def _head_part(body: Scope, x: Tensor, form: Attention, parts: Parts, at: Positions, size: int, part: str) -> Tensor:
    """Queries or keys: normalized, and rotated by their positions."""
    count = form.heads if part == "q" else form.key_heads
    made, name = _projected(body, x, form, parts, size, part), f"attn_{part}_norm"
    is_whole = (
        form.norm is not None and parts.has(f"{name}.weight") and parts.shape_of(f"{name}.weight") != (form.width,)
    )
    if form.norm is not None and is_whole:
        weight = parts.matrix(f"{name}.weight", (count * form.width,), f"{part}_norm")
        made = body.infix("*", _unit(body, made, form.norm, 1), weight)
    made = _heads(body, made, count, form, at)
    if form.norm is not None and not is_whole:
        weight = parts.matrix(f"{name}.weight", (form.width,), f"{part}_norm")
        made = body.infix("*", _unit(body, made, form.norm, 3), body.call("unsqueeze", weight, axes=[0, 1]))
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


def fed(scope: Scope, x: Tensor, form: FeedForward, parts: Parts, size: int, suffix: str = "") -> Tensor:
    """Adds a feed-forward layer."""
    inner = parts.rows_of(f"ffn_up{suffix}.weight")

    def build(body: Scope, x: Tensor) -> Tensor:
        up = matrix_product(body, x, parts, f"ffn_up{suffix}", (inner, size), "up")
        if form.is_gated:
            gate = matrix_product(body, x, parts, f"ffn_gate{suffix}", (inner, size), "gate")
            made = body.infix("*", activated(body, gate, form.activation), up)
        else:
            made = activated(body, up, form.activation)
        return matrix_product(body, made, parts, f"ffn_down{suffix}", (size, inner), "down")

    return scope.block("feed_forward", build, x)


def mixed(scope: Scope, x: Tensor, form: Experts, parts: Parts, size: int) -> Tensor:
    """Adds experts, and the layer that all rows use besides."""
    count = parts.rows_of("ffn_gate_inp.weight")
    inner = parts.shape_of("ffn_up_exps.weight")[1] if parts.has("ffn_up_exps.weight") else 0

    def build(body: Scope, x: Tensor) -> Tensor:
        router = parts.matrix("ffn_gate_inp.weight", (count, size), "router")
        up = parts.matrix("ffn_up_exps.weight", (count, inner, size), "up")
        gate = parts.matrix("ffn_gate_exps.weight", (count, inner, size), "gate")
        down = parts.matrix("ffn_down_exps.weight", (count, size, inner), "down")
        options: dict[str, Any] = {"k": form.count, "activation": form.activation, "gate": form.gate}
        options |= {"expert_layout": "linear"}
        for key, name, shape in (
            ("wg_bias", "ffn_gate_inp", (count,)),
            ("w1_bias", "ffn_gate_exps", (count, inner)),
            ("w3_bias", "ffn_up_exps", (count, inner)),
            ("w2_bias", "ffn_down_exps", (count, size)),
        ):
            bias = parts.optional(f"{name}.bias", shape, key)
            options |= {} if bias is None else {key: bias}
        options |= {"act_alpha": form.alpha, "act_limit": form.limit} if form.limit else {}
        made = body.call("tract_moe_ffn", x, router, gate, down, up, **options)
        return made if form.scale == 1 else body.infix("*", made, form.scale)

    made = scope.block("experts", build, x)
    if form.shared is None:
        return made
    shared = fed(scope, x, form.shared, parts, size, "_shexp")
    if parts.has("ffn_gate_inp_shexp.weight"):
        weight = parts.matrix("ffn_gate_inp_shexp.weight", parts.shape_of("ffn_gate_inp_shexp.weight"), "shared_gate")
        score = scope.call("sigmoid", scope.call("matmul", x, weight, transposeB=True))
        shared = scope.infix("*", shared, score)
    return scope.infix("+", made, shared)

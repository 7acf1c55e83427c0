"""Post-processes class scores, and derives two class scores from a single one. ai.onnx.ml."""

from __future__ import annotations

import math
from typing import Any, Literal

from tvm import relax, tirx

from nnefc.operators.base import Emitter, Operand, dtype_of, shape_of
from nnefc.operators.nn.activation import Softmax
from nnefc.support.diagnostics import CompileError

__all__ = ["TRANSFORMS", "of_two", "positive", "transformed"]

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The functions that may be applied to scores, as ai.onnx.ml names them."""


def transformed(ctx: Emitter, scores: Operand, transform: str) -> Operand:
    """Scores `[samples, classes]` after one of `TRANSFORMS`.

    Raises:
        CompileError: there is no such transformation.
    """
    match transform:
        case "NONE":
            return scores
        case "SOFTMAX":
            return Softmax((1,)).lower(ctx, scores)
        case "LOGISTIC":
            return relax.op.sigmoid(ctx.expr(scores))
        case "SOFTMAX_ZERO":
            return _softmax_of_others(ctx, ctx.expr(scores))
        case "PROBIT":
            return ctx.elements(shape_of(scores), lambda t, index: _probit(t[0](*index)), scores, name="probit")
    raise CompileError(f"the transformation '{transform}' of scores is unknown")


def _softmax_of_others(ctx: Emitter, scores: relax.Expr) -> relax.Expr:
    """A softmax of the scores that are not zero; the others stay so."""
    zero, one = (ctx.expr(ctx.number(value, scores)) for value in (0, 1))
    used = ctx.emit(relax.op.astype(ctx.emit(relax.op.not_equal(scores, zero)), dtype_of(scores)))
    largest = ctx.emit(relax.op.max(scores, [1], keepdims=True))
    powers = ctx.emit(relax.op.multiply(ctx.emit(relax.op.exp(ctx.emit(relax.op.subtract(scores, largest)))), used))
    total = ctx.emit(relax.op.sum(powers, [1], keepdims=True))
    some = ctx.emit(relax.op.where(ctx.emit(relax.op.greater(total, zero)), total, one))
    return relax.op.divide(powers, some)


_WINITZKI = 0.147


def _probit(score: tirx.Expr) -> tirx.Expr:
    """The normal distribution's quantile, √2 erf⁻¹(2p - 1), by Winitzki's formula of 2008, as other engines compute it.

    It is exact to two parts in a thousand.
    """

    def number(value: float) -> tirx.Expr:
        return tirx.const(value, score.ty.dtype)

    x = score * number(2) - number(1)
    logarithm = tirx.log((number(1) - x) * (number(1) + x))
    half = number(2 / (math.pi * _WINITZKI)) + number(0.5) * logarithm
    size = tirx.sqrt(tirx.sqrt(half * half - number(1 / _WINITZKI) * logarithm) - half)
    return number(math.sqrt(2)) * tirx.Select(x < number(0), number(0) - size, size)


def of_two(ctx: Emitter, score: Operand, transform: str, other: Literal["negative", "complement"]) -> Operand:
    """The scores `[samples, 2]` of two classes, float32, from the second one's, `[samples, 1]`.

    Args:
        transform: of the two scores, one of `TRANSFORMS`.
        other: the first score before it: the second one's negative, or what the second lacks of 1.
    """
    total = tirx.const(1.0 if other == "complement" else 0.0, dtype_of(score))

    def both(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        second = tensors[0](index[0], 0)
        return tirx.Select(index[1] == 1, second, total - second).astype("float32")

    return transformed(ctx, ctx.emit(ctx.elements((shape_of(score)[0], 2), both, score, name="two_scores")), transform)


def positive(ctx: Emitter, score: Operand, threshold: float = 0.0) -> relax.Expr:
    """The number of one of two classes, `[samples]` int64: 1 where a score `[samples, 1]` is above a threshold."""

    def number(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        return (tensors[0](index[0], 0) > tirx.const(threshold, dtype_of(score))).astype("int64")

    return ctx.emit(ctx.elements((shape_of(score)[0],), number, score, name="positive"))

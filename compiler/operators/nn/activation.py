"""Activation functions, by formulas that neither overflow nor lose small values, and that propagate NaN.

An activation is lowered to Relax's own operator where there is one that passes know, so that it keeps the layout of its
operand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax, tirx

from nnefc.operators.base import Emitter, Operand, Operator, SameShape, Shape, dtype_of, shape_of, zeros
from nnefc.operators.dtypes import Kind
from nnefc.operators.math.elementwise import fitted
from nnefc.operators.math.functions import FUNCTIONS, converted, number
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.broadcasting import fits

__all__ = [
    "Binarizer",
    "Celu",
    "Elu",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "LogSigmoid",
    "Mish",
    "ParametricRelu",
    "Relu",
    "Shrink",
    "Silu",
    "Softmax",
    "Softplus",
    "Softsign",
    "ThresholdedRelu",
    "mish",
    "softplus",
]


def softplus(x: tirx.Expr) -> tirx.Expr:
    """log(1 + eˣ) of a real as max(x, 0) + log1p(e^-|x|): eˣ for large negative x, where 1 + eˣ would be 1."""
    return tirx.max(x, number(0, x)) + tirx.log1p(tirx.exp(-tirx.abs(x)))


def mish(x: tirx.Expr) -> tirx.Expr:
    """x tanh(softplus(x)) (Misra, Mish: A Self Regularized Non-Monotonic Activation Function, 2019).

    tanh(log(1 + p)) = n / (n + 2) with p = eˣ and n = p (p + 2); from x = 20 on it is 1.
    """
    power = tirx.exp(tirx.min(number(20, x), x))  # in this order for NaN
    n = power * (power + number(2, x))
    return x * (n / (n + number(2, x)))


def exponential_minus_one(x: tirx.Expr) -> tirx.Expr:
    """eˣ - 1 without cancellation near 0, for what is not positive; for the rest a finite value."""
    return FUNCTIONS["expm1"].scalar(tirx.min(number(0, x), x))  # in this order -0 is less than 0 on all processors


class _Activation(SameShape):
    """An operator on each element."""

    @property
    def takes(self) -> Kind:
        """Most are of real numbers alone."""
        return "floating-point numbers"


def _each(ctx: Emitter, x: Operand, element: Callable[[tirx.Expr], tirx.Expr], name: str) -> relax.Expr:
    """A computation on each element that Relax has no operator for."""
    return ctx.elements(shape_of(x), lambda tensors, index: element(tensors[0](*index)), x, name=name)


def _number(ctx: Emitter, value: float, like: Operand) -> relax.Expr:
    return ctx.expr(ctx.number(value, like))


@dataclass(frozen=True)
class Relu(_Activation):
    """`max(x, 0)`."""

    @property
    def takes(self) -> Kind:
        """The first kind of elements that the activation is defined for: integers."""
        return "integers"

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        return relax.op.nn.relu(ctx.expr(x))


@dataclass(frozen=True)
class LeakyRelu(_Activation):
    """`x` where it is not negative, else `slope * x`."""

    slope: float

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        return relax.op.nn.leakyrelu(ctx.expr(x), self.slope)


@dataclass(frozen=True)
class ParametricRelu(Operator):
    """`x` where it is not negative, else `slope * x`, with slopes that broadcast to `x` (He et al., 2015)."""

    @property
    def takes(self) -> Kind:
        """Integers, too."""
        return "integers"

    def shape(self, x: Shape, slope: Shape) -> Shape:
        """Return the shape of the first operand."""
        pairs = zip(reversed(slope), reversed(x), strict=False)
        if len(slope) > len(x) or not all(fits(count, size) for count, size in pairs):
            raise CompileError(f"the slope {list(slope)} does not broadcast to {list(x)}")
        return x

    def lower(self, ctx: Emitter, x: Operand, slope: Operand) -> relax.Expr:
        """The sum of both sides: with known slopes of channels it stays in the layout of what it follows.

        Slopes of the run may be infinite or NaN, whose product with 0 is NaN: there a side is chosen.
        """
        self.shape(shape_of(x), shape_of(slope))
        data, slope = ctx.bound(x), fitted(ctx, slope, shape_of(x))
        if not (isinstance(slope, np.ndarray) and np.isfinite(slope).all()):
            is_below = ctx.emit(relax.op.less(ctx.expr(data), _number(ctx, 0, x)))
            return relax.op.where(
                is_below, ctx.emit(relax.op.multiply(ctx.expr(slope), ctx.expr(data))), ctx.expr(data)
            )
        above = ctx.emit(relax.op.nn.relu(ctx.expr(data)))
        # NaN is lost in `minimum`; the sum still has it from the other side.
        below = ctx.emit(relax.op.minimum(ctx.expr(data), _number(ctx, 0, x)))
        return relax.op.add(above, ctx.emit(relax.op.multiply(ctx.expr(slope), below)))


@dataclass(frozen=True)
class Elu(_Activation):
    """`scale` times `x` where it is positive, else `alpha (eˣ - 1)` (Clevert, Unterthiner, Hochreiter, 2015).

    With the constants of Klambauer et al., "Self-Normalizing Neural Networks" (2017), it is called SELU.
    """

    alpha: float = 1.0
    scale: float = 1.0

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        def element(x: tirx.Expr) -> tirx.Expr:
            below = number(self.alpha * self.scale, x) * exponential_minus_one(x)
            return tirx.Select(x <= number(0, x), below, x if self.scale == 1 else x * number(self.scale, x))

        return _each(ctx, x, element, "elu")


@dataclass(frozen=True)
class Celu(_Activation):
    """`x` where it is positive, else `alpha (e^(x / alpha) - 1)` (Barron, 2017)."""

    alpha: float = 1.0

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        if self.alpha == 0:
            raise CompileError("'alpha' must not be 0")

        def element(x: tirx.Expr) -> tirx.Expr:
            below = number(self.alpha, x) * exponential_minus_one(x / number(self.alpha, x))
            return tirx.Select(x <= number(0, x), below, x)

        return _each(ctx, x, element, "celu")


@dataclass(frozen=True)
class Binarizer(_Activation):
    """1 where `x` is above a threshold, else 0; of integers too. ai.onnx.ml `Binarizer`."""

    threshold: float

    @property
    def takes(self) -> Kind:
        """The first kind of elements that the activation is defined for: integers."""
        return "integers"

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        def element(entry: tirx.Expr) -> tirx.Expr:
            above = entry.astype("float64") > tirx.const(self.threshold, "float64")
            return tirx.Select(above, number(1, entry), number(0, entry))

        return _each(ctx, x, element, "binarize")


@dataclass(frozen=True)
class ThresholdedRelu(_Activation):
    """`x` where it is above `threshold`, else `value`.

    Attributes:
        keeps_nan: whether NaN stays so, as in PyTorch; it is not above the threshold in ONNX.
    """

    threshold: float
    value: float = 0.0
    keeps_nan: bool = True

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        def element(x: tirx.Expr) -> tirx.Expr:
            threshold, value = number(self.threshold, x), number(self.value, x)
            if self.keeps_nan:
                return tirx.Select(x <= threshold, value, x)
            return tirx.Select(x > threshold, x, value)

        return _each(ctx, x, element, "thresholded_relu")


@dataclass(frozen=True)
class Shrink(_Activation):
    """`x - bias` above `limit`, `x + bias` below `-limit`, else 0. ONNX `Shrink`, PyTorch's hard and soft shrink.

    Attributes:
        keeps_nan: whether NaN stays so, as in PyTorch; it is beyond no limit in ONNX.
    """

    bias: float
    limit: float
    keeps_nan: bool = True

    @property
    def takes(self) -> Kind:
        """The first kind of elements that the activation is defined for: integers."""
        return "integers"

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        dtype = dtype_of(x)

        def element(x: tirx.Expr) -> tirx.Expr:
            if "int" in dtype:  # limits and biases are reals
                return converted(real(x.astype("float64")), dtype)
            return real(x)

        def real(x: tirx.Expr) -> tirx.Expr:
            low, high, bias = number(-self.limit, x), number(self.limit, x), number(self.bias, x)
            if not self.keeps_nan:
                beyond = tirx.Select(x > high, x - bias, number(0, x))
                return tirx.Select(x < low, x + bias, beyond)
            inside = tirx.all(x >= low, x <= high)
            return tirx.Select(inside, number(0, x), tirx.Select(x < low, x + bias, x - bias))

        return _each(ctx, x, element, "shrink")


@dataclass(frozen=True)
class HardSigmoid(_Activation):
    """`alpha * x + beta`, cut to 0 … 1."""

    alpha: float = 1 / 6
    beta: float = 0.5

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        scaled = ctx.emit(relax.op.multiply(ctx.expr(x), _number(ctx, self.alpha, x)))
        return relax.op.clip(ctx.emit(relax.op.add(scaled, _number(ctx, self.beta, x))), 0.0, 1.0)


@dataclass(frozen=True)
class HardSwish(_Activation):
    """`x` times its hard sigmoid (Howard et al., "Searching for MobileNetV3", 2019)."""

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        return relax.op.multiply(ctx.expr(x), ctx.emit(HardSigmoid().lower(ctx, x)))


@dataclass(frozen=True)
class Silu(_Activation):
    """`x / (1 + e^(-scale x))`. PyTorch `silu`, ONNX `Swish`; with a scale of 1.702 NNEF's `gelu`."""

    scale: float = 1.0

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        data = ctx.expr(x)
        inner = data if self.scale == 1 else ctx.emit(relax.op.multiply(data, _number(ctx, self.scale, x)))
        return relax.op.multiply(data, ctx.emit(relax.op.sigmoid(inner)))


@dataclass(frozen=True)
class Gelu(_Activation):
    """`x` times the normal distribution's share below it (Hendrycks, Gimpel, 2016), or its approximation by tanh."""

    approximate: bool = False

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        return (relax.op.nn.gelu_tanh if self.approximate else relax.op.nn.gelu)(ctx.expr(x))


@dataclass(frozen=True)
class Softplus(_Activation):
    """`log(1 + e^(sharpness x)) / sharpness`, and `x` itself where `sharpness x` is above the threshold, if any."""

    sharpness: float = 1.0
    threshold: float | None = None

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        if self.sharpness == 0:
            raise CompileError("'beta' must not be 0")

        def element(x: tirx.Expr) -> tirx.Expr:
            if self.sharpness == 1:
                scaled, soft = x, softplus(x)
            else:
                scaled = x * number(self.sharpness, x)
                soft = softplus(scaled) / number(self.sharpness, x)
            if self.threshold is None:
                return soft
            return tirx.Select(scaled > number(self.threshold, x), x, soft)

        return _each(ctx, x, element, "softplus")


@dataclass(frozen=True)
class LogSigmoid(_Activation):
    """`log(1 / (1 + e^-x))`, which is `-softplus(-x)`."""

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        return _each(ctx, x, lambda x: tirx.min(x, number(0, x)) - tirx.log1p(tirx.exp(-tirx.abs(x))), "log_sigmoid")


@dataclass(frozen=True)
class Softsign(_Activation):
    """`x / (1 + |x|)`."""

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        below = relax.op.add(ctx.emit(relax.op.abs(ctx.expr(x))), _number(ctx, 1, x))
        return relax.op.divide(ctx.expr(x), ctx.emit(below))


@dataclass(frozen=True)
class Mish(_Activation):
    """`x tanh(log(1 + eˣ))`; see `mish`."""

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        return _each(ctx, x, mish, "mish")


@dataclass(frozen=True)
class Softmax(_Activation):
    """`eˣ / sum of eˣ` over axes, the largest element taken out first, so that nothing overflows.

    Attributes:
        axes: in ascending order; without any each element is a group of its own.
        logarithm: whether the result is its logarithm.
    """

    axes: Shape
    logarithm: bool = False

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        if len(self.axes) == 1:
            make = relax.op.nn.log_softmax if self.logarithm else relax.op.nn.softmax
            return make(ctx.expr(x), self.axes[0])
        if not self.axes:
            return zeros(shape_of(x), ctx.number(1, x).dtype, 0 if self.logarithm else 1)
        data, axes = ctx.expr(x), list(self.axes)
        largest = ctx.emit(relax.op.max(data, axis=axes, keepdims=True))
        less = ctx.emit(relax.op.subtract(data, largest))
        powers = ctx.emit(relax.op.exp(less))
        total = ctx.emit(relax.op.sum(powers, axis=axes, keepdims=True))
        if self.logarithm:
            return relax.op.subtract(less, ctx.emit(relax.op.log(total)))
        return relax.op.divide(powers, total)

"""Normalizations: a scale and a shift where statistics are trained, else with statistics computed in each run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm import relax

from nnefc.operators.base import Emitter, Operand, Operator, SameShape, Shape, dtype_of, is_empty, shape_of
from nnefc.operators.math.elementwise import fitted
from nnefc.operators.math.matrix import broadcasts_to
from nnefc.operators.math.reduction import Norm
from nnefc.operators.nn.pooling import mean_of_channels
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.unification import unify_dims

__all__ = [
    "BatchNormalization",
    "BatchNormalizationInTraining",
    "GroupNormalization",
    "LocalResponse",
    "LpNormalization",
    "MeanVarianceNormalization",
    "RootMeanSquare",
    "Standardization",
]


def _scaled(ctx: Emitter, x: relax.Expr, scale: Operand | None, offset: Operand | None) -> relax.Expr:
    """`x * scale + offset`, of which each may be left out; both broadcast to `x`."""
    given = [operand for operand in (scale, offset) if operand is not None]
    if given:
        x = ctx.expr(ctx.bound(x))
        shape = shape_of(x)
        for part in given:
            if not broadcasts_to(shape_of(part), shape):
                raise CompileError(f"a scale or offset {list(shape_of(part))} does not fit the elements {list(shape)}")
        scale, offset = (None if part is None else fitted(ctx, part, shape) for part in (scale, offset))
    if scale is not None:
        x = relax.op.multiply(x, ctx.expr(scale))
    return x if offset is None else relax.op.add(ctx.expr(ctx.bound(x)), ctx.expr(offset))


def _inverse_root(ctx: Emitter, variance: Operand, epsilon: float) -> relax.Expr:
    """`1 / sqrt(variance + epsilon)`."""
    raised = ctx.emit(relax.op.add(ctx.expr(variance), ctx.expr(ctx.number(epsilon, variance))))
    return ctx.emit(relax.op.rsqrt(raised))


@dataclass(frozen=True)
class BatchNormalization(SameShape):
    """`(x - mean) / sqrt(variance + epsilon) * scale + offset` with statistics of the training.

    Ioffe, Szegedy, "Batch Normalization" (2015). With constants it is one product and one sum, computed in float64 and
    rounded once, which fold into a convolution before it.
    """

    epsilon: float

    def lower(
        self,
        ctx: Emitter,
        x: Operand,
        mean: Operand,
        variance: Operand,
        scale: Operand | None = None,
        offset: Operand | None = None,
    ) -> relax.Expr:
        """All parameters broadcast to `x`."""
        one, zero = np.ones(()), np.zeros(())
        parameters = [mean, variance, one if scale is None else scale, zero if offset is None else offset]
        wide = [operand.astype(np.float64) for operand in parameters if isinstance(operand, np.ndarray)]
        if len(wide) == len(parameters):
            factor = wide[2] / np.sqrt(wide[1] + self.epsilon)
            summand = wide[3] - wide[0] * factor
            dtype = ctx.number(0, x).dtype
            product = ctx.emit(relax.op.multiply(ctx.expr(x), ctx.expr(factor.astype(dtype))))
            return relax.op.add(product, ctx.expr(summand.astype(dtype)))
        inverse = _inverse_root(ctx, variance, self.epsilon)
        if scale is not None:
            inverse = ctx.emit(relax.op.multiply(inverse, ctx.expr(scale)))
        centred = ctx.emit(relax.op.subtract(ctx.expr(x), ctx.expr(mean)))
        return _scaled(ctx, relax.op.multiply(centred, inverse), None, offset)


def _moments(ctx: Emitter, x: relax.Expr, axes: Shape) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """The mean along axes, which stay, with the size 1, the distances from it, and their mean square."""
    mean = ctx.emit(relax.op.mean(x, list(axes), keepdims=True))
    centred = ctx.emit(relax.op.subtract(x, mean))
    squares = ctx.emit(relax.op.multiply(centred, centred))
    return mean, centred, ctx.emit(relax.op.mean(squares, list(axes), keepdims=True))


@dataclass(frozen=True)
class BatchNormalizationInTraining(Operator):
    """Batch normalization with the statistics of the batch, from which running statistics are updated.

    The results are `y`, the running mean and variance, and those of the batch.

    Attributes:
        momentum: of the running statistics: `running * momentum + batch * (1 - momentum)`.
    """

    epsilon: float
    momentum: float

    def shape(self, x: Shape, *vectors: Shape) -> tuple[Shape, ...]:
        """Return the shape of the operand, and a vector of channels four times."""
        return (x, *[(x[1],)] * 4)

    def lower(
        self, ctx: Emitter, x: Operand, scale: Operand, offset: Operand, mean: Operand, variance: Operand
    ) -> tuple[Operand, ...]:
        """All parameters are vectors of channels."""
        shape = shape_of(x)
        means, centred, variances = _moments(ctx, ctx.expr(x), (0, *range(2, len(shape))))
        wide = [ctx.expr(ctx.reshaped(_cast(ctx, v, dtype_of(x)), _of_channels(v, x))) for v in (scale, offset)]
        factor = ctx.emit(relax.op.multiply(_inverse_root(ctx, variances, self.epsilon), wide[0]))
        made = relax.op.add(ctx.emit(relax.op.multiply(centred, factor)), wide[1])
        batch = [ctx.reshaped(statistic, (shape[1],)) for statistic in (means, variances)]
        pairs = zip((mean, variance), batch, strict=True)
        return (
            made,
            *(self._mixed(ctx, running, _cast(ctx, own, dtype_of(running))) for running, own in pairs),
            *batch,
        )

    def _mixed(self, ctx: Emitter, running: Operand, batch: Operand) -> relax.Expr:
        parts = (
            ctx.emit(relax.op.multiply(ctx.expr(operand), ctx.expr(ctx.number(weight, operand))))
            for operand, weight in ((running, self.momentum), (batch, 1 - self.momentum))
        )
        return relax.op.add(*parts)


def _cast(ctx: Emitter, x: Operand, dtype: str) -> Operand:
    return x if dtype_of(x) == dtype else ctx.emit(relax.op.astype(ctx.expr(x), dtype))


@dataclass(frozen=True)
class Standardization(Operator):
    """`(x - mean) / sqrt(variance + epsilon) * scale + offset` with the statistics over some axes of the operand.

    Layer normalization (Ba, Kiros, Hinton, 2016) over the last axes, instance normalization (Ulyanov, Vedaldi,
    Lempitsky, 2016) over the spatial ones.

    Attributes:
        axes: that the statistics are of.
        statistics: whether the mean and `1 / sqrt(variance + epsilon)` are results too.
    """

    axes: Shape
    epsilon: float
    statistics: bool = False

    def shape(self, x: Shape, *parameters: Shape) -> Shape | tuple[Shape, Shape, Shape]:
        """Return the shape of the operand; the axes of statistics stay, with the size 1."""
        reduced = tuple(1 if axis in self.axes else size for axis, size in enumerate(x))
        return (x, reduced, reduced) if self.statistics else x

    def lower(
        self, ctx: Emitter, x: Operand, scale: Operand | None = None, offset: Operand | None = None
    ) -> relax.Expr | tuple[relax.Expr, relax.Expr, relax.Expr]:
        """`scale` and `offset` broadcast to `x`."""
        mean, centred, variance = _moments(ctx, ctx.expr(x), self.axes)
        inverse = _inverse_root(ctx, variance, self.epsilon)
        made = _scaled(ctx, relax.op.multiply(centred, inverse), scale, offset)
        return (made, mean, inverse) if self.statistics else made


@dataclass(frozen=True)
class MeanVarianceNormalization(SameShape):
    """`(x - mean) / (standard deviation + epsilon)`, with the statistics over some axes of the operand."""

    axes: Shape
    epsilon: float

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        _, centred, variance = _moments(ctx, ctx.expr(x), self.axes)
        deviation = ctx.emit(relax.op.sqrt(variance))
        return relax.op.divide(centred, ctx.emit(relax.op.add(deviation, ctx.expr(ctx.number(self.epsilon, x)))))


@dataclass(frozen=True)
class LpNormalization(SameShape):
    """`x / max(norm + bias, epsilon)` with the norm along axes.

    NNEF `l1_normalization` and `l2_normalization`, ONNX `LpNormalization`, `torch.nn.functional.normalize`.

    Attributes:
        order: of the norm: `(sum of |x|^order)^(1 / order)`.
        epsilon: None: zeros where the norm is 0, as in ONNX.
    """

    axes: Shape
    order: float
    epsilon: float | None
    bias: float = 0.0

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        norm = ctx.expr(ctx.apply(Norm(self.axes, keepdims=True, order=self.order), x))
        if self.bias:
            norm = ctx.emit(relax.op.add(norm, ctx.expr(ctx.number(self.bias, x))))
        if self.epsilon is None:
            zero = ctx.emit(relax.op.equal(norm, ctx.expr(ctx.number(0, x))))
            divisor = relax.op.where(zero, ctx.expr(ctx.number(np.inf, x)), norm)
        else:
            divisor = relax.op.maximum(norm, ctx.expr(ctx.number(self.epsilon, x)))
        return relax.op.divide(ctx.expr(x), ctx.emit(divisor))


@dataclass(frozen=True)
class GroupNormalization(Operator):
    """The standardization of each group of channels with all their positions (Wu, He, 2018)."""

    groups: int
    epsilon: float

    def shape(self, x: Shape, scale: Shape | None = None, offset: Shape | None = None) -> Shape:
        """Return the shape of the operand, `[N, C, …]`."""
        if len(x) < 2 or self.groups < 1 or not unify_dims(x[1] % self.groups, 0):
            raise CompileError(f"{self.groups} groups do not divide the channels of {list(x)}")
        return x

    def lower(
        self, ctx: Emitter, x: Operand, scale: Operand | None = None, offset: Operand | None = None
    ) -> relax.Expr:
        """`scale` and `offset` have an element for each channel, or for each group."""
        shape = self.shape(shape_of(x))
        if is_empty(shape):
            return ctx.expr(x)
        grouped = ctx.reshaped(x, (shape[0], self.groups, math.prod(shape[1:]) // self.groups))
        normal: Operand = ctx.bound(Standardization((2,), self.epsilon).lower(ctx, grouped))
        of_groups = scale is not None and shape_of(scale) == (self.groups,) and self.groups != shape[1]
        if not of_groups:
            normal = ctx.reshaped(normal, shape)
        parameters = [
            None if operand is None else ctx.reshaped(operand, _of_channels(operand, normal))
            for operand in (scale, offset)
        ]
        return ctx.reshaped(ctx.bound(_scaled(ctx, ctx.expr(normal), *parameters)), shape)


def _of_channels(operand: Operand, x: Operand) -> Shape:
    """The shape of a vector of channels that broadcasts to `[N, C, …]`."""
    return (1, math.prod(shape_of(operand)), *[1] * (len(shape_of(x)) - 2))


@dataclass(frozen=True)
class RootMeanSquare(Operator):
    """`x / sqrt(mean of squares over axes + epsilon) * scale` (Zhang, Sennrich, 2019).

    Attributes:
        axes: that the mean is over.
        statistics: whether `1 / sqrt(mean + epsilon)` is a result too.
    """

    axes: Shape
    epsilon: float
    statistics: bool = False

    def shape(self, x: Shape, scale: Shape | None = None) -> Shape | tuple[Shape, Shape]:
        """Return the shape of the operand; the axes of statistics stay, with the size 1."""
        reduced = tuple(1 if axis in self.axes else size for axis, size in enumerate(x))
        return (x, reduced) if self.statistics else x

    def lower(
        self, ctx: Emitter, x: Operand, scale: Operand | None = None
    ) -> relax.Expr | tuple[relax.Expr, relax.Expr]:
        """`scale` broadcasts to `x`."""
        data = ctx.expr(x)
        squares = ctx.emit(relax.op.mean(ctx.emit(relax.op.multiply(data, data)), list(self.axes), keepdims=True))
        inverse = _inverse_root(ctx, squares, self.epsilon)
        made = _scaled(ctx, relax.op.multiply(data, inverse), scale, None)
        return (made, inverse) if self.statistics else made


@dataclass(frozen=True)
class LocalResponse(SameShape):
    """`x / (bias + alpha * m)^beta`, where m is the mean of the squares over a window of channels.

    Channels that do not exist count as zeros. Krizhevsky, Sutskever, Hinton, "ImageNet Classification with Deep
    Convolutional Neural Networks" (2012); ONNX `LRN`, `torch.nn.functional.local_response_norm`.

    Attributes:
        before, after: how many channels the window has on both sides of the own one.
    """

    before: int
    after: int
    alpha: float
    beta: float
    bias: float

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        data = ctx.expr(x)
        squares = ctx.emit(relax.op.multiply(data, data))
        means = ctx.emit(mean_of_channels(ctx, squares, self.before, self.after))
        scaled = ctx.emit(relax.op.multiply(means, ctx.expr(ctx.number(self.alpha, x))))
        base = ctx.emit(relax.op.add(scaled, ctx.expr(ctx.number(self.bias, x))))
        return relax.op.divide(data, ctx.emit(relax.op.power(base, ctx.expr(ctx.number(self.beta, x)))))

"""Resizes along axes by index and weight tables, which are constants or computed from the sizes at run time.

The computations index their operand through tables along the resized axes only, so that passes can run them in other
layouts: the kernel attribute `RESIZE` lists the axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.ir.attributes import RESIZE
from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, is_empty, shape_of, zeros
from nnefc.operators.math.functions import converted
from nnefc.operators.vision.interpolation import AxisScaling, Interpolation
from nnefc.symbolic.dims import expression

__all__ = ["Resize", "interpolate"]


_MAX_TAPS = 8
"""Elements that a result may read along all axes at once; with more, the axes are resized one after the other."""

_WIDE = 32
"""Bits of integers that float32 does not represent all of."""


@dataclass(frozen=True)
class _Step:
    """How one axis is read; see `interpolate`.

    Attributes:
        axis, how: the axis, and how it is read.
        taps: how many elements a result reads along it.
        tables: what `interpolate` needs for it.
    """

    axis: int
    how: int
    taps: int
    tables: tuple[Operand, ...]


@dataclass(frozen=True)
class Resize(Operator):
    """A resized tensor: each result is an element, or a weighted sum of neighbouring elements along some axes.

    ONNX `Resize` and `Upsample`, NNEF `nearest_upsample` and `multilinear_upsample`,
    `torch.nn.functional.interpolate`. Integers are interpolated as reals, cut to their range and off.

    Attributes:
        axes: (axis, scaling) of the dimensions that are resized.
        interpolation: how results between elements are computed.
    """

    axes: tuple[tuple[int, AxisScaling], ...]
    interpolation: Interpolation

    def shape(self, x: Shape) -> Shape:
        """The sizes, those of resized dimensions again."""
        results = {axis: scaling.results for axis, scaling in self.axes}
        return tuple(results.get(axis, size) for axis, size in enumerate(x))

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        dtype, shape = dtype_of(x), self.shape(shape_of(x))
        if is_empty(shape):
            return zeros(shape, dtype)
        nearest = self.interpolation.mode == "nearest"
        real = dtype if nearest or dtype in ("float16", "bfloat16", "float32", "float64") else "float32"
        made = ctx.bound(x) if real == dtype else ctx.emit(relax.op.astype(ctx.expr(x), real))
        for steps in self._kernels(ctx, real):
            made = ctx.emit(_interpolated(ctx, made, steps))
        if real != dtype:
            made = ctx.emit(_converted(ctx, ctx.expr(made), dtype))
        return self._extrapolated(ctx, made)

    def _kernels(self, ctx: Emitter, dtype: str) -> list[list[_Step]]:
        """Returns groups of axes, each resized by one kernel; unchanged axes are left out."""
        steps = [self._step(ctx, axis, scaling, dtype) for axis, scaling in self.axes]
        left = [step for step in steps if step is not None]
        if self.interpolation.mode == "nearest" or math.prod(step.taps for step in left) <= _MAX_TAPS:
            return [left] if left else []
        return [[step] for step in left]

    def _step(self, ctx: Emitter, axis: int, scaling: AxisScaling, dtype: str) -> _Step | None:
        """How an axis is read; None where each result is the element in its position."""
        nearest = self.interpolation.mode == "nearest"
        if not scaling.is_known:
            times = self.interpolation.repeats_elements(scaling)
            if times:
                return _Step(axis, times, 1, ())
            count = self.interpolation.tap_count(scaling)
            return _Step(axis, -(not nearest), count, self._computed(ctx, scaling, count, dtype))
        positions, weights = self.interpolation.taps(scaling)
        same = positions.shape[1] == 1 and scaling.elements == scaling.results and (weights == 1).all()
        if same and (positions[:, 0] == np.arange(scaling.elements)).all():
            return None
        factor = scaling.results // scaling.elements
        whole = nearest and factor * scaling.elements == scaling.results
        if whole and (positions[:, 0] == np.arange(scaling.results) // factor).all():
            return _Step(axis, factor, 1, ())
        tables = (positions.astype(np.int32), *([] if nearest else [weights.astype(dtype)]))
        return _Step(axis, -(not nearest), positions.shape[1], tables)

    def _computed(self, ctx: Emitter, scaling: AxisScaling, count: int, dtype: str) -> tuple[Operand, ...]:
        """Tables that the program computes from the sizes."""

        def table(part: int, kind: str) -> Operand:
            def compute(elements: int, results: int) -> te.Tensor:
                own = replace(scaling, elements=elements, results=results)

                def entry(result: tirx.Var, tap: tirx.Var) -> tirx.Expr:
                    taps = self.interpolation.taps_at(own, result)
                    chosen = taps[-1][part]
                    for other in reversed(range(count - 1)):
                        chosen = tirx.Select(tap == other, taps[other][part], chosen)
                    return chosen.astype(kind)

                return te.compute((expression(results), count), entry, name="taps")

            return ctx.emit(ctx.of_sizes(compute, scaling.elements, scaling.results, name="taps"))

        return (table(0, "int32"), *([] if self.interpolation.mode == "nearest" else [table(1, dtype)]))

    def _extrapolated(self, ctx: Emitter, x: Operand) -> Operand:
        """The result, with a constant where it lies outside."""
        if self.interpolation.coordinates != "tf_crop_and_resize":
            return x
        outside = [(axis, self._outside(ctx, scaling)) for axis, scaling in self.axes]
        outside = [(axis, mask) for axis, mask in outside if not isinstance(mask, np.ndarray) or mask.any()]
        if not outside:
            return x
        value = ctx.number(self.interpolation.extrapolation, x).item()

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            hits = [mask(index[axis]) for (axis, _), mask in zip(outside, tensors[1:], strict=True)]
            return tirx.Select(tirx.any(*hits), tirx.const(value, dtype_of(x)), tensors[0](*index))

        return ctx.elements(shape_of(x), element, x, *(mask for _, mask in outside), name="extrapolate")

    def _outside(self, ctx: Emitter, scaling: AxisScaling) -> Operand:
        """Return, for each result along an axis, whether it lies outside of the tensor."""
        if scaling.is_known:
            position = self.interpolation.sources(scaling)
            return np.asarray((position < 0) | (position > scaling.elements - 1))

        def compute(elements: int, results: int) -> te.Tensor:
            own = replace(scaling, elements=elements, results=results)

            def entry(result: tirx.Var) -> tirx.Expr:
                position = self.interpolation.source(own, result)
                return tirx.any(position < 0, position > own.last)

            return te.compute((expression(results),), entry, name="outside")

        return ctx.emit(ctx.of_sizes(compute, scaling.elements, scaling.results, name="outside"))


def _interpolated(ctx: Emitter, x: Operand, steps: Sequence[_Step]) -> relax.Expr:
    axes = [(step.axis, step.how) for step in steps]
    return ctx.compute(
        lambda *tensors: interpolate(tensors[0], tensors[1:], axes),
        x,
        *(table for step in steps for table in step.tables),
        name="resize",
        attrs={RESIZE: [number for pair in axes for number in pair]},
    )


def interpolate(x: te.Tensor, tables: Sequence[te.Tensor], axes: Sequence[tuple[int, int]]) -> te.Tensor:
    """Resize along some axes, by tables of elements and weights.

    Args:
        tables: for the axes that need them, in order: `[results, taps]` int32, the elements that a result reads; and
            their weights, of the type of `x`.
        axes: (axis, kind). Kind > 0: result i reads element i // kind; 0: the element of the next table at its first
            tap; -1: the sum of the elements of the next table, times the weights of the one after it.
    """
    tail = iter(tables)
    steps: list[tuple[int, int, list[te.Tensor]]] = []
    for axis, factor in axes:
        steps.append((axis, factor, [next(tail) for _ in range(max(1 - factor, 0))]))
    shape = list(x.shape)
    for axis, factor, own in steps:
        shape[axis] = own[0].shape[0] if own else shape[axis] * factor

    def value(index: Sequence[Any], position: list[Any], left: list[tuple[int, int, list[te.Tensor]]]) -> Any:
        if not left:
            return x(*position)
        (axis, factor, own), *after = left
        i = index[axis]

        def at(source: Any) -> Any:
            return value(index, [*position[:axis], source, *position[axis + 1 :]], after)

        if factor >= 0:
            return at(own[0](i, 0) if own else tirx.floordiv(i, factor))
        positions, weights = own
        parts = [at(positions(i, tap)) * weights(i, tap) for tap in range(int(positions.shape[1]))]
        return sum(parts[1:], parts[0])

    return te.compute(shape, lambda *index: value(index, list(index), steps), name="resize")


def _converted(ctx: Emitter, x: relax.Expr, dtype: str) -> relax.Expr:
    """Reals as integers: cut to the range of the type, then off; as booleans: whether they are not zero."""
    if dtype == "bool":
        return relax.op.astype(x, dtype)
    limits = np.iinfo(dtype)

    def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        value = tensors[0](*index)
        high, low = (tirx.const(float(limit), dtype_of(x)) for limit in (limits.max, limits.min))
        inside = tirx.max(tirx.min(value, high), low)
        if limits.bits < _WIDE:
            return tirx.trunc(inside).astype(dtype)
        return converted(inside, dtype)  # the limits, rounded to a real, may be beyond the type

    return ctx.elements(shape_of(x), element, x, name="narrow")

"""Element-wise operators: a scalar function of each element, with broadcasting from the last dimension."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, is_array, is_empty, shape_of, zeros
from nnefc.operators.dtypes import STORAGE, Kind, numpy_dtype, promoted_type
from nnefc.operators.math.functions import FUNCTIONS, POWERS, converted
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.broadcasting import joint
from nnefc.symbolic.dims import expression

__all__ = ["Clip", "Elementwise", "Where", "apply", "broadcast_shapes", "compute", "element_at", "fitted"]

_REALS = ("float32", "float64")


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The common shape of tensors, aligned at their last dimensions.

    Raises:
        CompileError: two sizes differ and neither is 1.
    """
    rank = max(map(len, shapes))
    result: list[Any] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            result[axis] = joint(result[axis], size)
            if result[axis] is None:
                raise CompileError(f"the shapes {' and '.join(str(list(shape)) for shape in shapes)} do not broadcast")
    return tuple(result)


def fitted(ctx: Emitter, operand: Operand, result: Shape) -> Operand:
    """An operand of a result of this shape with the result's sizes in place of those that are 1 in some runs
    alone."""
    own = shape_of(operand)
    wanted = result[len(result) - len(own) :]
    if all(size in (1, other) for size, other in zip(own, wanted, strict=True)):
        return operand
    shape = tuple(1 if size == 1 else other for size, other in zip(own, wanted, strict=True))

    def element(tensors: tuple[te.Tensor, ...], index: tuple[tirx.Var, ...]) -> tirx.Expr:
        axes = zip(index, own, shape, strict=True)
        return tensors[0](*(i if size == other else tirx.min(i, expression(size) - 1) for i, size, other in axes))

    return ctx.emit(ctx.elements(shape, element, operand, name="broadcast"))


def element_at(tensor: Any, index: Sequence[Any], result: Sequence[Any]) -> tirx.Expr:
    """The element of a tensor of TE, or a buffer, that broadcasting puts at `index` of a result of the shape `result`.

    Where the result has one position along a dimension too, the index stays: so an element-wise kernel is known as one,
    and can be fused.
    """
    axes = zip(reversed(tensor.shape), reversed(result), reversed(index), strict=False)
    positions = [0 if size == 1 and wanted != 1 else i for size, wanted, i in axes][::-1]
    return tensor(*positions) if isinstance(tensor, te.Tensor) else tensor[tuple(positions)]


def compute(
    ctx: Emitter, scalar: Callable[..., Any], *operands: Operand, name: str, dtype: str | None = None
) -> Operand:
    """A function of scalars that the table lacks. 16-bit floats are computed in float32, and rounded once.

    Args:
        scalar: of expressions of TIR, each of the type of its operand; constants of one element are constants in it.
        name: of the kernel.
        dtype: of the result; that of the first operand if it is not given.
    """
    dtype = dtype or dtype_of(operands[0])
    shape = broadcast_shapes(*map(shape_of, operands))
    if is_empty(shape):
        return zeros(shape, numpy_dtype(dtype))
    operands = tuple(fitted(ctx, operand, shape) for operand in operands)
    numbers = {i: _number(operand) for i, operand in enumerate(operands) if _is_number(operand)}
    if len(numbers) == len(operands):
        numbers = {}

    def element(tensors: tuple[te.Tensor, ...], index: tuple[tirx.Var, ...]) -> tirx.Expr:
        tail = iter(tensors)
        elements = (numbers[i] if i in numbers else element_at(next(tail), index, shape) for i in range(len(operands)))
        made = scalar(*(entry.astype(promoted_type(str(entry.ty))) for entry in elements))
        return converted(made if isinstance(made, tvm.ir.Expr) else made.asobject(), STORAGE.get(dtype, dtype))

    tensors = [operand for i, operand in enumerate(operands) if i not in numbers]
    return ctx.elements(shape, element, *tensors, name=name)


def _is_number(operand: Operand) -> bool:
    """Returns whether it is a constant of one element that TIR has a constant for."""
    if not isinstance(operand, np.ndarray) or operand.size != 1 or str(operand.dtype) in STORAGE:
        return False
    return operand.dtype != np.uint64 or bool(operand < 1 << 63)


def _number(operand: Operand) -> tirx.Expr:
    value = operand.reshape(())[()]
    return tirx.const(value.item() if str(operand.dtype) != "bfloat16" else float(value), str(operand.dtype))


def apply(ctx: Emitter, function: str, *operands: Operand) -> Operand:
    """A function of the table on each element of its operands, bound."""
    return ctx.bound(Elementwise(function).lower(ctx, *operands))


@dataclass(frozen=True)
class Elementwise(Operator):
    """A function of `FUNCTIONS` on each element. One of two arguments joins more operands than two from the left."""

    function: str

    @property
    def takes(self) -> Kind:
        """The first kind of elements that the function is defined for."""
        return FUNCTIONS[self.function].takes

    def shape(self, *shapes: Shape) -> Shape:
        """The common shape of the operands."""
        return broadcast_shapes(*shapes)

    def lower(self, ctx: Emitter, *operands: Operand) -> Operand:
        """All operands have one element type; the exponent of a power may have another."""
        if len(operands) > 2:
            return functools.reduce(lambda x, y: ctx.bound(self.lower(ctx, x, y)), operands)
        shape = self.shape(*map(shape_of, operands))
        function = FUNCTIONS[self.function]
        dtype = dtype_of(operands[0])
        arrays = [operand for operand in operands if isinstance(operand, np.ndarray)]
        if len(arrays) == len(operands) and is_array(shape, arrays[0].dtype, *arrays):
            with np.errstate(all="ignore"):
                return np.asarray(function.known(*arrays)).astype(function.dtype or arrays[0].dtype, copy=False)
        if is_empty(shape):
            return zeros(shape, numpy_dtype(function.dtype or dtype))
        operands = tuple(fitted(ctx, operand, shape) for operand in operands)
        if self.function == "power":
            short = _short_power(ctx, *operands)
            if short is not None:
                return short
        if self.function in ("divide", "floor_divide", "remainder") and _is_number(operands[1]) and not operands[1]:
            return self._by_zero(ctx, *operands)
        if function.relax is not None and dtype in _REALS and {dtype_of(operand) for operand in operands} == {dtype}:
            return function.relax(*map(ctx.expr, operands))
        return compute(ctx, function.scalar, *operands, name=self.function, dtype=function.dtype)

    def _by_zero(self, ctx: Emitter, x: Operand, zero: Operand) -> Operand:
        """Emit a division by a constant 0, which TVM refuses.

        Raises:
            CompileError: integers are divided.
        """
        if numpy_dtype(dtype_of(x)).kind in "iu":
            raise CompileError("integers are divided by a constant that is 0")
        if self.function == "remainder":
            return Elementwise("multiply").lower(ctx, x, np.full_like(zero, math.nan))
        return Elementwise("multiply").lower(ctx, x, np.asarray(np.copysign(np.full_like(zero, math.inf), zero)))


def _short_power(ctx: Emitter, x: Operand, y: Operand) -> Operand | None:
    """A power whose constant exponent has a simpler form."""
    if not isinstance(y, np.ndarray) or y.size != 1 or y.ndim > len(shape_of(x)):
        return None
    exponent = float(y.reshape(())[()])
    if exponent not in POWERS or (dtype_of(x) not in _REALS and exponent < 1):
        return None
    for name in POWERS[exponent]:
        x = Elementwise(name).lower(ctx, ctx.bound(x))
    return x


@dataclass(frozen=True)
class Where(Operator):
    """`x` where the condition is true, else `y`."""

    def shape(self, condition: Shape, x: Shape, y: Shape) -> Shape:
        """The common shape of the operands."""
        return broadcast_shapes(condition, x, y)

    def lower(self, ctx: Emitter, condition: Operand, x: Operand, y: Operand) -> Operand:
        shape = self.shape(shape_of(condition), shape_of(x), shape_of(y))
        arrays = [operand for operand in (condition, x, y) if isinstance(operand, np.ndarray)]
        if len(arrays) == 3 and is_array(shape, arrays[1].dtype, *arrays):
            return np.where(condition, x, y)
        if is_empty(shape):
            return zeros(shape, numpy_dtype(dtype_of(x)))
        condition, x, y = (fitted(ctx, operand, shape) for operand in (condition, x, y))
        return relax.op.where(ctx.expr(condition), ctx.expr(x), ctx.expr(y))


@dataclass(frozen=True)
class Clip(Operator):
    """`min(max(x, low), high)`; both bounds broadcast to `x`, and each may be left out.

    Attributes:
        low_last: `max(min(x, high), low)` instead, which is another number where the bounds are in the wrong order.
    """

    low_last: bool = False

    def shape(self, x: Shape, low: Shape | None = None, high: Shape | None = None) -> Shape:
        """The common shape of the operands."""
        return broadcast_shapes(*(shape for shape in (x, low, high) if shape is not None))

    def lower(self, ctx: Emitter, x: Operand, low: Operand | None = None, high: Operand | None = None) -> Operand:
        """The bounds have the element type of `x`."""
        bounds = [b.reshape(())[()] for b in (low, high) if isinstance(b, np.ndarray) and b.size == 1]
        if not isinstance(x, np.ndarray) and dtype_of(x) in _REALS and len(bounds) == 2 and bounds[0] <= bounds[1]:
            return relax.op.clip(ctx.expr(x), *(relax.prim_value(float(bound)) for bound in bounds))
        steps = [("maximum", low), ("minimum", high)]
        for name, bound in reversed(steps) if self.low_last else steps:
            if bound is not None:
                x = Elementwise(name).lower(ctx, ctx.bound(x), bound)
        return x

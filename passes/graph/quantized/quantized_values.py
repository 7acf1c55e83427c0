"""Represents real tensors by integers: dequantized tensors, and sums of scaled integers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from tvm import relax

from nnefc.operators.dtypes import numpy_dtype
from nnefc.passes.graph.rewriter import array_of, constant, is_call, is_constant, shape_of
from nnefc.support.element_types import FLOAT8, integer_range

__all__ = [
    "Grid",
    "Quantized",
    "ScaledSum",
    "axis_after_reshape",
    "grid_of",
    "limits_of",
    "quantized_of",
    "sum_type",
    "zero_type",
]


@dataclass(frozen=True, eq=False)
class Grid:
    """The dequantized values of integers, or of floats of 8 bits whose zero is 0: `(q - zero) · scale`.

    Attributes:
        scale, zero: float32 and int64; without axes, or one element for each position along `axis`.
        axis: from the front; None for one scale and one zero.
    """

    scale: np.ndarray
    zero: np.ndarray
    axis: int | None = None

    def same_as(self, other: Grid) -> bool:
        """Whether the same integers have the same dequantized values."""
        same = np.array_equal(self.scale, other.scale) and np.array_equal(self.zero, other.zero)
        return same and self.axis == other.axis

    @property
    def relax_axis(self) -> int:
        """Returns the axis as operators have it."""
        return -1 if self.axis is None else self.axis

    def step(self, value: float, dtype: str) -> float:
        """Returns the integer to which a real number is rounded, or the real number rounded to an 8-bit float; for one
        scale.
        """
        low, high = limits_of(dtype)
        if dtype in FLOAT8:
            return float(np.clip(np.float32(value) / self.scale, low, high))
        rounded = np.rint(np.float32(value) / self.scale) + self.zero
        return int(np.clip(rounded, low, high))


@dataclass(frozen=True, eq=False)
class Quantized:
    """A tensor of integers or floats of 8 bits, and their dequantized values."""

    data: relax.Expr
    grid: Grid

    @property
    def dtype(self) -> str:
        """The type of the elements."""
        return str(self.data.ty.dtype)

    def dequantized(self) -> relax.Call:
        """Returns the dequantized values."""
        grid = self.grid
        zero = constant(grid.zero.astype(zero_type(self.dtype)))
        return relax.op.dequantize(self.data, constant(grid.scale), zero, grid.relax_axis, "float32")


@dataclass(frozen=True, eq=False)
class ScaledSum:
    """`Σ numbers · factor + shift`.

    Attributes:
        terms: tensors of integers, or of float32, of the shape of the sum, and float64 factors that broadcast to it.
        shift: float64, broadcasts to that shape too.
    """

    terms: tuple[tuple[relax.Expr, np.ndarray], ...]
    shift: np.ndarray

    def plus(self, other: ScaledSum) -> ScaledSum:
        """Returns the sum of both."""
        return ScaledSum(self.terms + other.terms, self.shift + other.shift)

    def times(self, factor: np.ndarray) -> ScaledSum:
        """Returns the product with a factor that broadcasts."""
        return ScaledSum(tuple((data, own * factor) for data, own in self.terms), self.shift * factor)

    def dequantized(self) -> relax.Expr:
        """Returns the sum in float32."""
        total = None
        for data, factor in self.terms:
            wide = data if str(data.ty.dtype) == "float32" else relax.op.astype(data, "float32")
            term = relax.op.multiply(wide, _operand(factor))
            total = term if total is None else relax.op.add(total, term)
        return relax.op.add(total, _operand(self.shift)) if self.shift.any() else total


def _operand(value: np.ndarray) -> relax.Expr:
    """Returns a constant in float32 with at least one axis: a scalar would become part of the code, and kernels would
    differ.
    """
    return constant(np.atleast_1d(value).astype(np.float32))


def grid_of(call: relax.Call) -> Grid | None:
    """Returns the grid of a `quantize` or `dequantize`; None if it is unknown or has scales that are not positive."""
    _, scale, zero = call.args
    if not is_constant(scale) or not is_constant(zero):
        return None
    scales, zeros = array_of(scale).astype(np.float32), array_of(zero).astype(np.int64)
    if not np.isfinite(scales).all() or not (scales > 0).all():
        return None
    if scales.size == 1:
        return Grid(scales.reshape(()), zeros.reshape(()))
    return Grid(scales, np.broadcast_to(zeros, scales.shape), int(call.attrs.axis) % len(shape_of(call.args[0])))


def limits_of(dtype: str) -> tuple[float, float]:
    """Returns the smallest and the largest number of a type of 8 bits."""
    if dtype in FLOAT8:
        largest = float(ml_dtypes.finfo(numpy_dtype(dtype)).max)  # type: ignore[no-untyped-call]
        return -largest, largest
    low, high = integer_range(dtype)
    return low, high


def sum_type(dtype: str) -> str:
    """Returns the type that products of elements of a type of 8 bits are summed up in."""
    return "float32" if dtype in FLOAT8 else "int32"


def zero_type(dtype: str) -> str:
    """Returns the type of zero points of a type of 8 bits, as TVM's operators take them."""
    return "int8" if dtype in FLOAT8 else dtype


def quantized_of(call: relax.Expr | None) -> Quantized | None:
    """Returns the operands of a `dequantize`; None for anything else."""
    if not is_call(call, "dequantize") or str(call.attrs.out_dtype) != "float32":
        return None
    grid = grid_of(call)
    return None if grid is None else Quantized(call.args[0], grid)


def axis_after_reshape(axis: int, before: tuple[int, ...], after: tuple[int, ...]) -> int | None:
    """Returns an axis's position after a reshape; None if it does not survive."""
    outer = math.prod(before[:axis])
    for position, size in enumerate(after):
        if size == before[axis] and math.prod(after[:position]) == outer:
            return position
    return None

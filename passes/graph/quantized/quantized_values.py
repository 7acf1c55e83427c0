"""Represents real tensors by integers: dequantized tensors, and sums of scaled integers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm import relax

from nnefc.passes.graph.rewriter import array_of, constant, is_call, is_constant, shape_of

__all__ = ["Grid", "Quantized", "ScaledSum", "axis_after_reshape", "grid_of", "quantized_of"]


@dataclass(frozen=True, eq=False)
class Grid:
    """The dequantized values of integers: `(q - zero) · scale`.

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

    def step(self, value: float, dtype: str) -> int:
        """Returns the integer of the type `dtype` that a real number is rounded to; for one scale."""
        limits = np.iinfo(dtype)
        rounded = np.rint(np.float32(value) / self.scale) + self.zero
        return int(np.clip(rounded, limits.min, limits.max))


@dataclass(frozen=True, eq=False)
class Quantized:
    """A tensor of integers, and their dequantized values."""

    data: relax.Expr
    grid: Grid

    @property
    def dtype(self) -> str:
        """The type of the integers."""
        return str(self.data.ty.dtype)

    def dequantized(self) -> relax.Call:
        """Returns the dequantized values."""
        grid = self.grid
        scale, zero = constant(grid.scale), constant(grid.zero.astype(self.dtype))
        return relax.op.dequantize(self.data, scale, zero, -1 if grid.axis is None else grid.axis, "float32")


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
    """Returns a constant in float32, never without axes: that would become part of the code, and kernels
    would differ.
    """
    return constant(np.atleast_1d(value).astype(np.float32))


def grid_of(call: relax.Call) -> Grid | None:
    """Returns the grid of a `quantize` or `dequantize`; None if it is not known, or has other steps than
    positive ones.
    """
    _, scale, zero = call.args
    if not is_constant(scale) or not is_constant(zero):
        return None
    scales, zeros = array_of(scale).astype(np.float32), array_of(zero).astype(np.int64)
    if not np.isfinite(scales).all() or not (scales > 0).all():
        return None
    if scales.size == 1:
        return Grid(scales.reshape(()), zeros.reshape(()))
    return Grid(scales, np.broadcast_to(zeros, scales.shape), int(call.attrs.axis) % len(shape_of(call.args[0])))


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

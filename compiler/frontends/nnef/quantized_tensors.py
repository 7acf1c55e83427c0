"""Quantizes tensors that `graph.quant` has an entry for to 8-bit integers.

    "x": zero_point_linear_quantize(zero_point = 3, scale = 0.1, bits = 8, signed = false, symmetric = false);
    x = relu(y);      →      x = dequantize(quantize(relu(y), 0.1, 3), 0.1, 3)

The file of a variable may hold the integers themselves. Passes compute with what follows from such tensors in integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnefc.frontends.nnef.files.quantization import QuantizedBy
from nnefc.operators.base import Emitter, Operand, rank_of
from nnefc.operators.math.elementwise import Clip
from nnefc.operators.nn.quantization import RANGES, Dequantization, Quantization

__all__ = ["Codes", "QuantizationGrid", "grid_of"]

Array = npt.NDArray[Any]

_OFF = 1e-4
"""Steps that zero may be away from an integer: bounds are written with so many digits."""


@dataclass(frozen=True, eq=False)
class QuantizationGrid:
    """Quantization parameters: a code represents `(code - zero) * scale`.

    Attributes:
        scale, zero: float32 and the integers' type; one, or one for each location along `axis`.
        dtype: uint8 or int8.
        lowest: the smallest code, which is not the type's where codes are symmetric.
        axis: None for one scale.
    """

    scale: Array
    zero: Array
    dtype: str
    lowest: int
    axis: int | None

    def applied(self, ctx: Emitter, x: Operand) -> Operand:
        """The reals that the codes of `x` stand for."""
        low, high = RANGES[self.dtype]
        if self.lowest > low:
            bounds = [(code - self.zero.astype(np.float32)) * self.scale for code in (self.lowest, high)]
            if self.axis is not None:
                along = [-1] + [1] * (rank_of(x) - self.axis - 1)
                bounds = [bound.reshape(along) for bound in bounds]
            x = ctx.apply(Clip(), x, *(np.asarray(bound, np.float32) for bound in bounds))
        codes = ctx.apply(Quantization(axis=self.axis, dtype=self.dtype), x, self.scale, self.zero)
        return self.reals(ctx, codes)

    def reals(self, ctx: Emitter, codes: Operand) -> Operand:
        """Emit the dequantization of codes."""
        made: Operand = ctx.apply(Dequantization(axis=self.axis), ctx.expr(codes), self.scale, self.zero)
        return made

    def fits(self, codes: Array) -> bool:
        """Returns whether stored integers are codes of this grid as they are."""
        low, high = RANGES[self.dtype]
        return codes.dtype.kind in "iu" and bool(codes.min() >= low and codes.max() <= high)


@dataclass(frozen=True, eq=False)
class Codes:
    """A variable whose file holds integers, and what they stand for.

    Attributes:
        codes: of the grid's type.
        reals: float32, for what must be known to the compiler.
    """

    codes: Array
    grid: QuantizationGrid
    reals: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the variable."""
        return self.codes.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the dequantized values."""
        return self.reals.dtype

    def values(self) -> Array:
        """Return the dequantized values."""
        return self.reals

    def lower(self, ctx: Emitter) -> Operand:
        """The same, computed by the network."""
        return self.grid.reals(ctx, self.codes)


def grid_of(by: QuantizedBy, shape: Sequence[Any]) -> QuantizationGrid | None:
    """The integers of 8 bits that an entry says a tensor is rounded to; None if it says something else."""
    steps = _STEPS.get(by.operation.name)
    arguments = by.arguments
    if steps is None or arguments.get("bits") != 8:
        return None
    scale, zero = np.broadcast_arrays(*steps(arguments))
    whole = np.asarray(np.rint(zero))
    axes = [axis for axis, size in enumerate(scale.shape) if size > 1]
    signed = bool(arguments.get("signed", False))
    dtype = "int8" if signed else "uint8"
    low, high = RANGES[dtype]
    with np.errstate(all="ignore"):
        single = np.asarray(scale.astype(np.float32))
    usual = np.isfinite(single).all() and (single > np.finfo(np.float32).tiny).all() and len(axes) <= 1
    if not usual or (np.abs(zero - whole) > _OFF).any() or whole.min() < low or whole.max() > high:
        return None
    if axes and (scale.ndim > len(shape) or shape[axes[0]] != scale.size):
        return None
    lowest = low + (signed and bool(arguments.get("symmetric", False)))
    axis, own = (axes[0], (-1,)) if axes else (None, ())
    return QuantizationGrid(
        np.asarray(single.reshape(own)), np.asarray(whole.astype(dtype).reshape(own)), dtype, lowest, axis
    )


def _of_zero_point(arguments: Mapping[str, Any]) -> tuple[Array, Array]:
    return np.array(arguments["scale"], np.float64), np.array(arguments["zero_point"], np.float64)


def _of_bounds(arguments: Mapping[str, Any]) -> tuple[Array, Array]:
    """`code = round((x - min) / (max - min) * steps) - shift`."""
    signed, symmetric = bool(arguments.get("signed", False)), bool(arguments.get("symmetric", False))
    shift = 128 - symmetric if signed else 0
    low, high = (np.array(arguments[name], np.float64) for name in ("min", "max"))
    with np.errstate(all="ignore"):
        scale = (high - low) / (255 - (signed and symmetric))
        return scale, -low / scale - shift


_STEPS = {
    "zero_point_linear_quantize": _of_zero_point,
    "linear_quantize": _of_bounds,
    "min_max_linear_quantize": _of_bounds,
}
"""Scale and zero point, float64, by the names of operations."""

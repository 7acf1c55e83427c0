"""Applies `graph.quant` in tract's dialect: integer tensors and their quantization parameters.

    "h": zero_point_linear_quantize(zero_point = 3, scale = 0.1, bits = 8, signed = false);
    h = relu(x)        →   h = dequantize(quantize(relu(x), 0.1, 3), 0.1, 3)

The file of a variable holds the integers themselves. A bias of integers has the product of the scales of what it is
added to. Passes compute such a network in integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnefc.frontends.nnef.dynamic.emitter import DynamicEmitter
from nnefc.frontends.nnef.dynamic.values import Value, is_tensor
from nnefc.frontends.nnef.files.quantization import Quantization as Entries
from nnefc.frontends.nnef.files.quantization import QuantizedBy
from nnefc.operators.base import Operand, dtype_of, numpy_dtype, rank_of, shape_of
from nnefc.operators.dtypes import STORAGE
from nnefc.operators.nn.quantization import RANGES, Dequantization, Quantization
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.arrays import Array

__all__ = ["QuantizedTensors", "zero_points"]

_FACTORS = {"conv": ("input", "filter"), "deconv": ("input", "filter"), "linear": ("input", "filter")}
"""Operations with a bias → the arguments that are multiplied."""

_FURTHEST = 1 << 24
"""Up to this integer float32 is exact."""


@dataclass(frozen=True)
class _Grid:
    """Quantization parameters: an integer represents `(element - zero) * scale`.

    Attributes:
        scale, zero: float32 and integers, of one element or one for each along an axis.
        dtype: of the integers.
        axis: the dimension along which they differ, if the entry says it.
    """

    scale: Array
    zero: Array
    dtype: str
    axis: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Grid) and self.dtype == other.dtype and _same(self, other)

    __hash__ = None  # type: ignore[assignment]


def _same(one: _Grid, other: _Grid) -> bool:
    return one.axis == other.axis and np.array_equal(one.scale, other.scale) and np.array_equal(one.zero, other.zero)


class QuantizedTensors:
    """The tensors of a graph that its `graph.quant` names.

    Args:
        ctx: where the network is built.
        entries: of `graph.quant`, by name.
    """

    def __init__(self, ctx: DynamicEmitter, entries: Entries) -> None:
        self._ctx = ctx
        self._grids = {name: _grid(name, by) for name, by in entries.items()}
        self._known: list[tuple[Operand, _Grid, Operand]] = []

    def assigned(self, name: str, value: Value) -> Value:
        """Return the value that is assigned to a name: if it has an entry in `graph.quant`, the dequantized one.

        Raises:
            CompileError: the parameters do not fit the tensor.
        """
        grid = self._grids.get(name)
        if grid is None or not is_tensor(value):
            return value
        ctx = self._ctx
        if self._grid_of(value) == grid:
            return value
        axis = _axis(name, grid, shape_of(value))
        if numpy_dtype(dtype_of(value)).kind in "iu":
            codes: Operand = _stored(name, grid, value) if isinstance(value, np.ndarray) else value
        elif grid.dtype in RANGES:
            codes = ctx.apply(Quantization(axis=axis, dtype=grid.dtype), value, grid.scale, grid.zero)
        else:
            return value
        return self._standing_for(codes, grid, axis)

    def _standing_for(self, codes: Operand, grid: _Grid, axis: int | None) -> Operand:
        ctx = self._ctx
        made: Operand = ctx.apply(Dequantization(axis=axis), ctx.expr(codes), grid.scale, grid.zero)
        self._known.append((made, grid, codes))
        return made

    def rounded(self, value: Operand, scale: float, zero: int, dtype: str) -> Operand:
        """Rounds reals to the values that 8-bit integers represent."""
        grid = _Grid(np.array(scale, np.float32), zero_points(zero, dtype), dtype)
        codes = self._ctx.apply(Quantization(dtype=dtype), value, grid.scale, grid.zero)
        return self._standing_for(codes, grid, None)

    def codes_of(self, value: Value) -> Value:
        """The integers that a value is known to be; other values as they are."""
        return next((codes for known, _, codes in self._known if known is value), value)

    def result(self, name: str, value: Value) -> Value:
        """Returns the graph's result under a name: with a quantization entry, the integers."""
        return self.codes_of(value) if name in self._grids else value

    def dtype_of(self, value: Value) -> str | None:
        """The type of the integers that a value is known to be; None for others."""
        grid = self._grid_of(value)
        return None if grid is None else grid.dtype

    def input_dtype(self, name: str) -> str | None:
        """The type of the integers that an input is given as; None for others."""
        grid = self._grids.get(name)
        return None if grid is None or grid.dtype not in RANGES else _kept_as(grid.dtype)

    def arguments(self, name: str, given: Mapping[str, Value]) -> Mapping[str, Value]:
        """The arguments of a call: a bias of integers becomes what these stand for."""
        bias = given.get("bias")
        if name not in _FACTORS or not isinstance(bias, np.ndarray) or bias.dtype.kind not in "iu":
            return given
        grids = [self._grid_of(given.get(each)) for each in _FACTORS[name]]
        if grids[0] is None or grids[1] is None:
            return given
        scale = np.asarray(grids[0].scale * grids[1].scale, np.float32)
        axis = rank_of(bias) - 1 if scale.size > 1 else None
        codes = self._ctx.expr(bias.astype(np.int32))
        made = self._ctx.apply(Dequantization(axis=axis), codes, scale, np.zeros(scale.shape, np.int32))
        return {**given, "bias": made}

    def _grid_of(self, value: Value) -> _Grid | None:
        return next((grid for known, grid, _ in self._known if known is value), None)


def _stored(name: str, grid: _Grid, codes: Array) -> Array:
    """The integers of a file, in the type that the entry says."""
    dtype = _kept_as(grid.dtype)
    low, high = RANGES.get(grid.dtype, (np.iinfo(np.int32).min, np.iinfo(np.int32).max))
    if codes.size and not low <= codes.min() <= codes.max() <= high:
        raise CompileError(f"'{name}' has integers that are not {grid.dtype}, as its entry in graph.quant says")
    return codes.astype(dtype)


def _kept_as(dtype: str) -> str:
    """The type that integers have in the library."""
    return STORAGE.get(dtype, dtype) if dtype in RANGES else "int32"


def _grid(name: str, by: QuantizedBy) -> _Grid:
    """Return an entry's quantization. With limits, tract has signed integers and a truncated zero point in the middle.

    Raises:
        CompileError: the entry is of an operation that tract does not have, or says nothing that can be computed.
    """
    arguments = by.arguments
    bits = int(arguments["bits"])
    try:
        with np.errstate(all="ignore"):
            if by.operation.name == "zero_point_linear_quantize":
                sign = "" if bits == 32 or arguments.get("signed", False) else "u"
                return _of_lists(arguments["scale"], arguments["zero_point"], f"{sign}int{bits}")
            if by.operation.name == "linear_quantize":
                low, high = (np.asarray(arguments[each], np.float32) for each in ("min", "max"))
                scale = (high - low) / np.float32(2.0**bits - 1)
                return _of_lists(scale, np.trunc(-(low + high) / 2 / scale), f"int{bits}")
    except CompileError as error:
        raise CompileError(f"the entry of '{name}' in graph.quant, '{by}': {error.message}") from None
    raise CompileError(f"'{name}' is quantized by '{by.operation.name}', which tract's dialect does not have")


def _of_lists(scale: Any, zero: Any, dtype: str) -> _Grid:
    scales, zeros = np.broadcast_arrays(np.asarray(scale, np.float32), np.asarray(zero, np.float64))
    if not (np.isfinite(scales) & (scales > 0)).all():
        raise CompileError("a step must be a positive number")
    axes = [axis for axis, size in enumerate(scales.shape) if size > 1]
    if len(axes) > 1:
        raise CompileError(f"{list(scales.shape)} scales differ along more than one dimension")
    own = (-1,) if axes else ()
    axis = axes[0] if axes and scales.ndim > 1 else None
    return _Grid(np.array(scales).reshape(own), zero_points(zeros, dtype).reshape(own), dtype, axis)


def zero_points(values: Any, dtype: str) -> Array:
    """Zero points in the type of their integers, or as int32 where one is beyond its range: tract has such, too.

    Raises:
        CompileError: one is no integer, or needs more than 24 bits.
    """
    points = np.asarray(values, np.float64)
    if not (points == np.rint(points)).all() or (np.abs(points) > _FURTHEST).any():
        raise CompileError(f"zero points must be integers up to {_FURTHEST}")
    low, high = RANGES.get(dtype, (-_FURTHEST, _FURTHEST))
    fits = dtype in RANGES and low <= points.min() and points.max() <= high
    return points.astype(_kept_as(dtype) if fits else "int32")


def _axis(name: str, grid: _Grid, shape: tuple[int, ...]) -> int | None:
    """The dimension along which scales differ, the first of their size unless they say it; None for one scale."""
    if grid.scale.ndim == 0:
        return None
    axes = range(len(shape)) if grid.axis is None else range(grid.axis, grid.axis + 1)
    for axis in axes:
        if axis < len(shape) and shape[axis] == grid.scale.size:
            return axis
    raise CompileError(f"'{name}' has the shape {list(shape)}, for which {list(grid.scale.shape)} scales are given")

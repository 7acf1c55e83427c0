"""Computes source coordinates and interpolation weights of a resize.

The formulas hold for arrays of positions, which are computed while compiling, and for expressions of one position,
which kernels compute where sizes are known at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from tvm import tirx

from nnefc.operators.base import Array, check_table
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, bounds, expression, is_known, size_hint

__all__ = ["COORDINATES", "ROUNDINGS", "AxisScaling", "Interpolation"]

Real: TypeAlias = Any
"""Reals: an array, a number, or an expression of the type float64."""


@dataclass(frozen=True)
class AxisScaling:
    """How one axis is resized.

    Attributes:
        elements, results: its size before and after.
        scale: results for each element, as the network says; not always `results / elements`. None for that quotient,
            where it is known at run time only.
        begin, end: which part of the axis, of 1, the results cover.
    """

    elements: Dimension
    results: Dimension
    scale: float | None
    begin: float = 0.0
    end: float = 1.0

    @classmethod
    def between(cls, elements: Dimension, results: Dimension) -> AxisScaling:
        """Return the scaling from one size to another, by their quotient."""
        if is_known(elements, results):
            return cls(elements, results, results / elements if elements else 1.0)
        whole, part = (
            max(1, size_hint(a) // max(1, size_hint(b))) for a, b in ((results, elements), (elements, results))
        )
        if results == elements * whole:
            return cls(elements, results, float(whole))
        return cls(elements, results, 1 / part if elements == results * part else None)

    @property
    def is_known(self) -> bool:
        """Whether its sizes are known at compile time."""
        return is_known(self.elements, self.results)

    @property
    def keeps_positions(self) -> bool:
        """Whether there are as many results as elements, at their positions, in all coordinates."""
        return self.scale == 1 and self.elements == self.results and (self.begin, self.end) == (0, 1)

    @property
    def factor(self) -> Real:
        """The scale as a number or an expression."""
        return _real(self.results) / _real(self.elements) if self.scale is None else self.scale

    @property
    def last(self) -> Real:
        """The position of the last element."""
        return _real(self.elements - 1)

    @property
    def length(self) -> Real:
        """How many results there are before they are rounded to whole ones."""
        return _real(self.results) if self.scale is None else self.scale * _real(self.elements)


def _real(size: Dimension) -> Real:
    return size if is_known(size) else expression(size).astype("float64")


def _unless_one(axis: AxisScaling, single: Callable[[], Real], other: Callable[[], Real]) -> Real:
    """`single` where there is one result before rounding, else `other`."""
    if axis.is_known:
        return single() if axis.length == 1 else other()
    size, one = (axis.results, 1.0) if axis.scale is None else (axis.elements, 1 / axis.scale)
    if bounds(size) == (one, one):
        return single()
    if not one.is_integer() or not bounds(size)[0] <= one <= bounds(size)[1]:
        return other()
    return tirx.Select(tirx.EQ(expression(size), expression(int(one))), single(), other())


def _chosen(condition: Any, one: Real, other: Real) -> Real:
    """Return a select, of arrays or of expressions."""
    return np.where(condition, one, other) if isinstance(condition, np.ndarray) else tirx.Select(condition, one, other)


def _either(numpys: Callable[[Any], Any], own: Callable[[Any], Any]) -> Callable[[Real], Real]:
    """A function of NumPy for arrays, and TVM's for expressions."""
    return lambda x: own(x) if isinstance(x, tirx.Expr) else numpys(x)


_floor, _ceil = _either(np.floor, tirx.floor), _either(np.ceil, tirx.ceil)
_absolute, _cut_off = _either(np.abs, tirx.abs), _either(np.trunc, tirx.trunc)

_Coordinates: TypeAlias = Callable[[AxisScaling, Real], Real]


def _half_pixel(axis: AxisScaling, at: Real) -> Real:
    return (at + 0.5) / axis.factor - 0.5


def _half_pixel_symmetric(axis: AxisScaling, at: Real) -> Real:
    return _real(axis.elements) / 2 * (1 - _real(axis.results) / axis.length) + (at + 0.5) / axis.factor - 0.5


def _pytorch_half_pixel(axis: AxisScaling, at: Real) -> Real:
    return _unless_one(AxisScaling(axis.results, axis.results, 1.0), lambda: at * 0, lambda: _half_pixel(axis, at))


def _align_corners(axis: AxisScaling, at: Real) -> Real:
    return _unless_one(axis, lambda: at * 0, lambda: at * axis.last / (axis.length - 1))


def _crop_and_resize(axis: AxisScaling, at: Real) -> Real:
    part = (axis.end - axis.begin) * axis.last
    inner = _unless_one(axis, lambda: at * 0 + part / 2, lambda: at * part / (axis.length - 1))
    return inner + axis.begin * axis.last


def _in_single(offset: float) -> _Coordinates:
    """PyTorch computes the positions of nearest neighbours in single precision."""

    def position(axis: AxisScaling, at: Real) -> Real:
        if isinstance(at, np.ndarray) and axis.scale is not None:
            return (at.astype(np.float32) + np.float32(offset)) * np.float32(1 / axis.scale)
        step = tirx.const(1, "float64") / axis.factor
        return (at.astype("float32") + tirx.const(offset, "float32")) * step.astype("float32")

    return position


COORDINATES: Mapping[str, _Coordinates] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "tf_half_pixel_for_nn": lambda axis, at: (at + 0.5) / axis.factor,
    "align_corners": _align_corners,
    "asymmetric": lambda axis, at: at / axis.factor,
    "tf_crop_and_resize": _crop_and_resize,
    "pytorch_nearest": _in_single(0.0),
    "pytorch_nearest_exact": _in_single(0.5),
}
"""Functions that return the positions of results, float64. The names are those of ONNX `Resize`, and two more."""

_EVEN = frozenset(COORDINATES) - {"align_corners", "tf_crop_and_resize", "pytorch_nearest", "pytorch_nearest_exact"}
"""Coordinates in which, with a whole scale, results lie between each element and the next as between the first two."""

ROUNDINGS: Mapping[str, Callable[[Real], Real]] = {
    "round_prefer_floor": lambda x: _ceil(x - 0.5),
    "round_prefer_ceil": lambda x: _floor(x + 0.5),
    "floor": _floor,
    "ceil": _ceil,
    "simple": _cut_off,
}
"""Which element is nearest. The names are those of ONNX."""


def _linear(distance: Real, _a: float) -> Real:
    weight = 1 - _absolute(distance)
    return np.clip(weight, 0, 1) if isinstance(weight, np.ndarray) else tirx.max(weight, tirx.const(0, "float64"))


def _cubic(distance: Real, a: float) -> Real:
    """Keys, "Cubic convolution interpolation for digital image processing" (1981)."""
    d = _absolute(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return _chosen(d <= 1, near, _chosen(d < 2, far, far * 0))


_KERNELS: dict[str, tuple[Callable[[Real, float], Real], int]] = {"linear": (_linear, 1), "cubic": (_cubic, 2)}
"""Weights by distance, and how far they reach."""


@dataclass(frozen=True)
class Interpolation:
    """The interpolation of a result between elements.

    Attributes:
        mode: "nearest", "linear" or "cubic".
        coordinates: a name of `COORDINATES`.
        rounding: which element is nearest, a name of `ROUNDINGS`.
        outside: elements outside: "edge", the nearest one; "zero"; "exclude": the other weights are scaled up instead.
        cubic: the coefficient of the cubic kernel.
        antialias: whether the kernel is stretched where there are fewer results than elements.
        extrapolation: the value of results that lie outside, with the coordinates "tf_crop_and_resize".
    """

    mode: str
    coordinates: str
    rounding: str = "floor"
    outside: str = "edge"
    cubic: float = -0.75
    antialias: bool = False
    extrapolation: float = 0.0

    def sources(self, axis: AxisScaling) -> Array:
        """Return the positions of the results, float64."""
        check_table(axis.results)
        made: Array = COORDINATES[self.coordinates](axis, np.arange(axis.results, dtype=np.float64))
        return made

    def source(self, axis: AxisScaling, at: tirx.Expr) -> tirx.Expr:
        """Returns the source coordinate of the result at an index, float64."""
        # Already whole: without the call, TVM's analysis of intervals fails for reals times and over dynamic sizes.
        made: tirx.Expr = COORDINATES[self.coordinates](axis, tirx.trunc(at.astype("float64")))
        return made

    def taps(self, axis: AxisScaling) -> tuple[Array, Array]:
        """`[results, taps]`: which elements each result reads, and their weights."""
        sources = self.sources(axis)
        if self.mode == "nearest":
            return ROUNDINGS[self.rounding](sources)[:, None].clip(0, axis.elements - 1), np.ones((axis.results, 1))
        kernel, reach = _KERNELS[self.mode]
        shrunk = min(axis.factor, 1.0) if self.antialias else 1.0
        count = math.ceil(reach / shrunk)
        check_table(axis.results * 2 * count)
        positions = np.floor(sources).astype(np.int64)[:, None] + np.arange(1 - count, count + 1)
        weights = kernel((positions - sources[:, None]) * shrunk, self.cubic)
        if self.outside != "edge":
            weights = np.where((positions >= 0) & (positions < axis.elements), weights, 0)
        if self.outside == "exclude" or shrunk != 1.0:
            weights = weights / weights.sum(1, keepdims=True)
        used = np.flatnonzero((weights != 0).any(0))
        return np.clip(positions, 0, axis.elements - 1)[:, used], weights[:, used]

    def tap_count(self, axis: AxisScaling) -> int:
        """Returns how many elements a result reads, of an axis whose sizes are known at run time.

        Raises:
            CompileError: it depends on the sizes.
        """
        if self.mode == "nearest":
            return 1
        return 2 * math.ceil(_KERNELS[self.mode][1] / self._shrink_factor(axis))

    def _shrink_factor(self, axis: AxisScaling) -> float:
        if not self.antialias:
            return 1.0
        if axis.scale is None:
            raise CompileError(
                f"resizing {axis.elements} to {axis.results} with an antialiasing filter reads as many "
                f"elements for each "
                "result as their quotient says, which is not the same for all sizes",
                hint="give these sizes: --shape NAME=SIZE",
            )
        return min(axis.scale, 1.0)

    def taps_at(self, axis: AxisScaling, at: tirx.Expr) -> list[tuple[tirx.Expr, tirx.Expr]]:
        """Returns the taps of one result: the indices that it reads, int32, and their weights, float64."""
        source = self.source(axis, at)
        elements = expression(axis.elements)

        def inside(position: tirx.Expr) -> tirx.Expr:
            return tirx.max(tirx.min(position, elements - 1), tirx.const(0, "int64")).astype("int32")

        if self.mode == "nearest":
            return [(inside(ROUNDINGS[self.rounding](source).astype("int64")), tirx.const(1, "float64"))]
        kernel, shrunk, count = _KERNELS[self.mode][0], self._shrink_factor(axis), self.tap_count(axis) // 2
        positions = [_floor(source).astype("int64") + tap for tap in range(1 - count, count + 1)]
        weights = [kernel((position.astype("float64") - source) * shrunk, self.cubic) for position in positions]
        if self.outside != "edge":
            pairs = zip(positions, weights, strict=True)
            weights = [
                tirx.Select(tirx.all(position >= 0, position < elements), weight, weight * 0)
                for position, weight in pairs
            ]
        if self.outside == "exclude" or shrunk != 1.0:
            whole = sum(weights[1:], weights[0])
            weights = [weight / whole for weight in weights]
        return [(inside(position), weight) for position, weight in zip(positions, weights, strict=True)]

    def repeats_elements(self, axis: AxisScaling) -> int:
        """Returns how often each element is a result, where results are the elements repeated whatever the sizes are;
        else
        0."""
        times = 0 if axis.scale is None else int(axis.scale)
        even = self.mode == "nearest" and self.coordinates in _EVEN and times > 1 and times == axis.scale
        if not even or axis.results != axis.elements * times:
            return 0
        positions, _ = self.taps(replace(axis, elements=4, results=4 * times))
        return times if (positions[:, 0] == np.arange(4 * times) // times).all() else 0

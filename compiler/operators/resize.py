"""Changing the resolution: where each result reads along each axis is known at compile time.

The computations read their operand along some axes only, so that passes can run them on tensors in other layouts: the
attribute `RESIZE` of a kernel says along which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, check_table, dtype_of, shape_of

__all__ = ["COORDINATES", "RESIZE", "ROUNDINGS", "Interpolation", "Resize", "Scaling", "interpolate"]

RESIZE = "nnefc.resize"
"""Attribute of a kernel that `interpolate` makes: for each axis that it resizes, the axis and how (see there)."""

_MOST_TAPS = 8
"""Items that a result may read along all axes at once; with more, the axes are resized one after the other."""


@dataclass(frozen=True)
class Scaling:
    """How one axis is resized.

    Attributes:
        items, results: its extent before and after.
        scale: results for each item, as the network says; not always `results / items`.
        begin, end: which part of the axis, of 1, the results cover.
    """

    items: int
    results: int
    scale: float
    begin: float = 0.0
    end: float = 1.0

    @property
    def length(self) -> float:
        """How many results there are before they are rounded to whole ones."""
        return self.scale * self.items


_Coordinates = Callable[[Scaling, Array], Array]


def _half_pixel(axis: Scaling, at: Array) -> Array:
    return (at + 0.5) / axis.scale - 0.5


def _half_pixel_symmetric(axis: Scaling, at: Array) -> Array:
    return axis.items / 2 * (1 - axis.results / axis.length) + (at + 0.5) / axis.scale - 0.5


def _pytorch_half_pixel(axis: Scaling, at: Array) -> Array:
    return _half_pixel(axis, at) if axis.length != 1 else np.full(at.shape, -0.5)


def _align_corners(axis: Scaling, at: Array) -> Array:
    return np.zeros(at.shape) if axis.length == 1 else at * (axis.items - 1) / (axis.length - 1)


def _crop_and_resize(axis: Scaling, at: Array) -> Array:
    part = (axis.end - axis.begin) * (axis.items - 1)
    inner = np.full(at.shape, part / 2) if axis.length == 1 else at * part / (axis.length - 1)
    return inner + axis.begin * (axis.items - 1)


def _in_single(offset: float) -> _Coordinates:
    """PyTorch computes the positions of nearest neighbours in single precision."""
    return lambda axis, at: (at.astype(np.float32) + np.float32(offset)) * np.float32(1 / axis.scale)


COORDINATES: Mapping[str, _Coordinates] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "tf_half_pixel_for_nn": lambda axis, at: (at + 0.5) / axis.scale,
    "align_corners": _align_corners,
    "asymmetric": lambda axis, at: at / axis.scale,
    "tf_crop_and_resize": _crop_and_resize,
    "pytorch_nearest": _in_single(0.0),
    "pytorch_nearest_exact": _in_single(0.5),
}
"""Where each result lies between the items, float64. The names are those of ONNX `Resize`, and two of our own."""

ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
    "simple": np.trunc,
}
"""Which item is nearest. The names are those of ONNX."""


def _linear(distance: Array, _a: float) -> Array:
    return np.asarray(np.clip(1 - np.abs(distance), 0, 1))


def _cubic(distance: Array, a: float) -> Array:
    """Keys, "Cubic convolution interpolation for digital image processing" (1981)."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0.0)))


_KERNELS: dict[str, tuple[Callable[[Array, float], Array], int]] = {"linear": (_linear, 1), "cubic": (_cubic, 2)}
"""Weights by distance, and how far they reach."""


@dataclass(frozen=True)
class Interpolation:
    """What a result between items is.

    Attributes:
        mode: "nearest", "linear" or "cubic".
        coordinates: a name of `COORDINATES`.
        rounding: which item is nearest, a name of `ROUNDINGS`.
        outside: what items outside are: "edge", the nearest one; "zero"; "exclude": the others weigh more for it.
        cubic: the coefficient of the cubic kernel.
        antialias: whether the kernel is widened where there are fewer results than items.
        extrapolation: what results are that lie outside, with the coordinates "tf_crop_and_resize".
    """

    mode: str
    coordinates: str
    rounding: str = "floor"
    outside: str = "edge"
    cubic: float = -0.75
    antialias: bool = False
    extrapolation: float = 0.0

    def sources(self, axis: Scaling) -> Array:
        """Where each result lies."""
        check_table(axis.results)
        return COORDINATES[self.coordinates](axis, np.arange(axis.results, dtype=np.float64))

    def taps(self, axis: Scaling) -> tuple[Array, Array]:
        """`[results, taps]`: which items each result reads, and their weights."""
        sources = self.sources(axis)
        if self.mode == "nearest":
            return ROUNDINGS[self.rounding](sources)[:, None].clip(0, axis.items - 1), np.ones((axis.results, 1))
        kernel, reach = _KERNELS[self.mode]
        narrowed = min(axis.scale, 1.0) if self.antialias else 1.0
        count = math.ceil(reach / narrowed)
        check_table(axis.results * 2 * count)
        places = np.floor(sources).astype(np.int64)[:, None] + np.arange(1 - count, count + 1)
        weights = kernel((places - sources[:, None]) * narrowed, self.cubic)
        if self.outside != "edge":
            weights = np.where((places >= 0) & (places < axis.items), weights, 0)
        if self.outside == "exclude" or narrowed != 1.0:
            weights = weights / weights.sum(1, keepdims=True)
        used = np.flatnonzero((weights != 0).any(0))
        return np.clip(places, 0, axis.items - 1)[:, used], weights[:, used]


@dataclass(frozen=True)
class Resize(Operator):
    """Each result is an item, or a weighted sum of items, at a place between the items along some axes.

    ONNX `Resize` and `Upsample`, NNEF `nearest_upsample` and `multilinear_upsample`,
    `torch.nn.functional.interpolate`. Integers are interpolated as reals, cut to their range and off.

    Attributes:
        axes: how some dimensions are resized; the others stay.
        interpolation: what a result between items is.
    """

    axes: tuple[tuple[int, Scaling], ...]
    interpolation: Interpolation

    def shape(self, x: Shape) -> Shape:
        """The extents, those of resized dimensions anew."""
        results = {axis: scaling.results for axis, scaling in self.axes}
        return tuple(results.get(axis, extent) for axis, extent in enumerate(x))

    def lower(self, at: Emitter, x: Operand) -> Operand:
        dtype, shape = dtype_of(x), self.shape(shape_of(x))
        if 0 in shape:
            return np.zeros(shape, dtype)
        nearest = self.interpolation.mode == "nearest"
        real = dtype if nearest or dtype in ("float16", "bfloat16", "float32", "float64") else "float32"
        made = at.bound(x) if real == dtype else at.emit(relax.op.astype(at.expr(x), real))
        for steps in self._kernels(nearest):
            made = at.emit(_interpolated(at, made, steps, real, nearest))
        if real != dtype:
            made = at.emit(_narrowed(at, at.expr(made), dtype))
        return self._extrapolated(at, made)

    def _kernels(self, nearest: bool) -> list[list[tuple[int, Scaling, Array, Array]]]:
        """What is resized at once: each step an axis, its scaling, and its taps; what stays as it is is left out."""
        steps = []
        for axis, scaling in self.axes:
            places, weights = self.interpolation.taps(scaling)
            same = places.shape[1] == 1 and scaling.items == scaling.results and (weights == 1).all()
            if not (same and (places[:, 0] == np.arange(scaling.items)).all()):
                steps.append((axis, scaling, places, weights))
        if nearest or math.prod(places.shape[1] for _, _, places, _ in steps) <= _MOST_TAPS:
            return [steps] if steps else []
        return [[step] for step in steps]

    def _extrapolated(self, at: Emitter, x: Operand) -> Operand:
        """The result, with a constant where it lies outside."""
        if self.interpolation.coordinates != "tf_crop_and_resize":
            return x
        sources = [(axis, scaling, self.interpolation.sources(scaling)) for axis, scaling in self.axes]
        outside = [(axis, (place < 0) | (place > scaling.items - 1)) for axis, scaling, place in sources]
        if not any(mask.any() for _, mask in outside):
            return x
        value = at.number(self.interpolation.extrapolation, x).item()

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            hits = [mask(index[axis]) for (axis, _), mask in zip(outside, tensors[1:], strict=True)]
            return tirx.Select(tirx.any(*hits), tirx.const(value, dtype_of(x)), tensors[0](*index))

        return at.elements(shape_of(x), element, x, *(mask for _, mask in outside), name="extrapolate")


def _interpolated(
    at: Emitter, x: Operand, steps: Sequence[tuple[int, Scaling, Array, Array]], dtype: str, nearest: bool
) -> relax.Expr:
    axes: list[tuple[int, int]] = []
    tables: list[Array] = []
    for axis, scaling, places, weights in steps:
        factor = scaling.results // scaling.items
        whole = nearest and factor * scaling.items == scaling.results
        if whole and (places[:, 0] == np.arange(scaling.results) // factor).all():
            axes.append((axis, factor))
        else:
            axes.append((axis, 0 if nearest else -1))
            tables += [places.astype(np.int32), *([] if nearest else [weights.astype(dtype)])]
    return at.compute(
        lambda *tensors: interpolate(tensors[0], tensors[1:], axes),
        x,
        *tables,
        name="resize",
        attrs={RESIZE: [number for pair in axes for number in pair]},
    )


def interpolate(x: te.Tensor, tables: Sequence[te.Tensor], axes: Sequence[tuple[int, int]]) -> te.Tensor:
    """Each result reads at its own index but along some axes.

    Args:
        tables: for the axes that need some, in their order: `[results, taps]` int32, which items a result reads; and
            their weights, of the type of `x`.
        axes: axis and how: by a factor, result i reads item i // factor; 0: what the next table says, at its first
            tap; -1: the sum of what the next table says, times the weights in the one after it.
    """
    rest = iter(tables)
    steps: list[tuple[int, int, list[te.Tensor]]] = []
    for axis, factor in axes:
        steps.append((axis, factor, [next(rest) for _ in range(max(1 - factor, 0))]))
    shape = list(x.shape)
    for axis, factor, own in steps:
        shape[axis] = own[0].shape[0] if own else shape[axis] * factor

    def value(index: Sequence[Any], place: list[Any], left: list[tuple[int, int, list[te.Tensor]]]) -> Any:
        if not left:
            return x(*place)
        (axis, factor, own), *after = left
        i = index[axis]

        def at(source: Any) -> Any:
            return value(index, [*place[:axis], source, *place[axis + 1 :]], after)

        if factor >= 0:
            return at(own[0](i, 0) if own else tirx.floordiv(i, factor))
        places, weights = own
        parts = [at(places(i, tap)) * weights(i, tap) for tap in range(int(places.shape[1]))]
        return sum(parts[1:], parts[0])

    return te.compute(shape, lambda *index: value(index, list(index), steps), name="resize")


def _narrowed(at: Emitter, x: relax.Expr, dtype: str) -> relax.Expr:
    """Reals as integers: cut to the range of the type, then off; as truth values: whether they are not zero."""
    if dtype == "bool":
        return relax.op.astype(x, dtype)
    limits = np.iinfo(dtype)

    def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        value = tensors[0](*index)
        high, low = (tirx.const(float(limit), dtype_of(x)) for limit in (limits.max, limits.min))
        return tirx.trunc(tirx.max(tirx.min(value, high), low)).astype(dtype)

    return at.elements(shape_of(x), element, x, name="narrow")

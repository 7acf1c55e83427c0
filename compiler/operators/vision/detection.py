"""Samples between elements at computed coordinates: resampled regions of interest, affine grids, grid sampling.

Positions come from the data: whatever they are, nothing outside a tensor is read.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tvm import relax, te, tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, is_empty, shape_of, zeros
from nnefc.operators.vision.regions import Regions, clamped
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, Size, expression, is_known
from nnefc.symbolic.unification import unify_dims

__all__ = ["AffineGrid", "GridSample", "PositionSample", "RoiResample"]


def _integer(value: Any) -> tirx.Expr:
    return value.astype("int32")


def _like(x: Any, value: float) -> tirx.Expr:
    """A constant, or a size, of the element type of an expression."""
    dtype = str(x.expr_ty().dtype)
    if isinstance(value, int | float):
        return tirx.const(value, dtype)
    size: tirx.Expr = value.expr if isinstance(value, Size) else value
    return size.astype(dtype)


def _cubic(tail: tirx.Expr) -> list[tirx.Expr]:
    """Keys, "Cubic convolution interpolation for digital image processing" (1981), with the coefficient -0.75."""
    a, one = -0.75, _like(tail, 1)

    def far(d: Any) -> Any:
        return ((_like(d, a) * d - _like(d, 5 * a)) * d + _like(d, 8 * a)) * d - _like(d, 4 * a)

    def near(d: Any) -> Any:
        return ((_like(d, a + 2) * d - _like(d, a + 3)) * d) * d + one

    return [far(tail + one), near(tail), near(one - tail), far(_like(tail, 2) - tail)]


_TAPS: dict[str, tuple[int, Callable[[tirx.Expr], list[tirx.Expr]]]] = {
    "linear": (0, lambda tail: [_like(tail, 1) - tail, tail]),
    "cubic": (-1, _cubic),
}
"""The first element that is read, from the one before the position, and the weights of it and those that
follow."""


def _interpolated(
    read: Callable[[list[Any]], tirx.Expr],
    indices: Sequence[tirx.Expr],
    mode: str = "linear",
    combine: Callable[[Any, Any], Any] = operator.add,
) -> tirx.Expr:
    """The weighted elements around a position between them, added up; `read` gives the element at integer positions."""
    start, weights_at = _TAPS[mode]
    floors = [tirx.floor(position) for position in indices]
    weights = [weights_at(position - floor) for position, floor in zip(indices, floors, strict=True)]

    def along(axis: int, positions: list[Any]) -> Any:
        if axis == len(indices):
            return read(positions)
        first, total = _integer(floors[axis]) + start, None
        for step, weight in enumerate(weights[axis]):
            part = along(axis + 1, [*positions, first + step]) * weight
            total = part if total is None else combine(total, part)
        return total

    return along(0, [])


@dataclass(frozen=True)
class RoiResample(Regions):
    """Regions resized linearly to `results`; the input's border is repeated beyond it. NNEF `roi_resample`.

    Attributes:
        method: where results lie between the edges: "symmetric", "asymmetric" or "aligned", as in NNEF's upsampling.
    """

    method: str

    def lower(self, ctx: Emitter, x: Operand, rois: Operand, batch: Operand | None = None) -> Operand:
        shape = self.shape(shape_of(x), shape_of(rois), None if batch is None else shape_of(batch))
        if is_empty(shape):
            return zeros(shape, ctx.number(0, x).dtype)
        return ctx.compute(self._resample, x, rois, *([] if batch is None else [batch]), name="roi_resample")

    def _image(self, n: Any, images: int, rois: te.Tensor, batch: Sequence[te.Tensor]) -> tirx.Expr:
        """The batch element that region `n` is of."""
        return clamped(_integer(batch[0](n) if batch else rois(n, 0)), 0, images - 1)

    def _edges(self, n: Any, axis: int, rois: te.Tensor, batch: Sequence[te.Tensor]) -> tuple[Any, Any]:
        """Returns the begin and end of region `n` along a spatial axis (0: y, 1: x)."""
        first = 0 if batch else 1
        return rois(n, first + 1 - axis), rois(n, first + 3 - axis)

    def _source(self, edges: tuple[Any, Any], position: Any, count: int) -> Any:
        first, last = edges
        span, position, half = last - first, position.astype(str(first.expr_ty().dtype)), _like(first, 0.5)
        match self.method:
            case "symmetric":
                return first + (position + half) * span / _like(first, count) - half
            case "asymmetric":
                return first + position * span / _like(first, count)
            case _:
                return first + position * (span - _like(first, 1)) / _like(first, max(1, count - 1))

    def _resample(self, x: te.Tensor, rois: te.Tensor, *batch: te.Tensor) -> te.Tensor:
        images, _, *sizes = x.shape

        def element(n: Any, c: Any, *indices: Any) -> Any:
            sources = [
                clamped(
                    self._source(self._edges(n, axis, rois, batch), position, count),
                    tirx.const(0, rois.dtype),
                    (size - 1).astype(rois.dtype),
                )
                for axis, (position, count, size) in enumerate(zip(indices, self.results, sizes, strict=True))
            ]

            def read(at: list[Any]) -> Any:
                within = [clamped(p, 0, size - 1) for p, size in zip(at, sizes, strict=True)]
                return x(self._image(n, images, rois, batch), c, *within)

            return _interpolated(read, sources)

        return te.compute((rois.shape[0], x.shape[1], *self.results), element, name="roi_resample")


@dataclass(frozen=True)
class AffineGrid(Operator):
    """The positions of a grid's elements, transformed by matrices `[N, rank, rank + 1]`: `[N, *sizes, rank]`.

    Positions are those that :class:`GridSample` takes. Jaderberg et al., "Spatial Transformer Networks" (2015); ONNX
    `AffineGrid`, `torch.nn.functional.affine_grid`.

    Attributes:
        sizes: of the grid, the outermost first.
        aligned: whether -1 and 1 are the centres of the first and last elements, not their outer edges. An only element
            is at -1 then, as in ONNX's reference.
    """

    sizes: Shape
    aligned: bool

    def shape(self, theta: Shape) -> Shape:
        """`[N, *sizes, rank]`."""
        rank = len(self.sizes)
        if len(theta) != 3 or not (unify_dims(theta[1], rank) and unify_dims(theta[2], rank + 1)):
            raise CompileError(f"matrices {list(theta)} do not fit a grid of {rank} dimensions")
        return (theta[0], *self.sizes, rank)

    def lower(self, ctx: Emitter, theta: Operand) -> relax.Expr:
        dtype, rank = dtype_of(theta), len(self.sizes)
        work = "float64" if dtype == "float64" else "float32"

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            n, *indices, row = index
            found = [
                self._position(position.astype(work), size) for position, size in zip(indices, self.sizes, strict=True)
            ]
            factors = [tensors[0](n, row, column).astype(work) for column in range(rank + 1)]
            terms = map(operator.mul, factors, reversed(found))
            return functools.reduce(operator.add, terms, factors[-1]).astype(dtype)

        return ctx.elements(self.shape(shape_of(theta)), element, theta, name="affine_grid")

    def _position(self, element: Any, size: Dimension) -> tirx.Expr:
        """Return the coordinate, from -1 to 1, of an element's index."""
        one, two = _like(element, 1), _like(element, 2)
        if not self.aligned:
            return (two * element + one) / _like(element, size) - one
        last = max(size - 1, 1) if is_known(size) else tirx.max(expression(size) - 1, 1)
        return two * element / _like(element, last) - one


@dataclass(frozen=True)
class GridSample(Operator):
    """The elements of `x`, `[N, C, *spatial]`, at the positions that a grid `[N, *results, rank]` says.

    A position is from -1 to 1 along each dimension, the innermost first. Jaderberg et al., "Spatial Transformer
    Networks" (2015); ONNX `GridSample`, `torch.nn.functional.grid_sample`.

    Attributes:
        mode: between elements, the "nearest" one, or "linear" or "cubic" interpolation.
        padding: what lies outside: "zeros", the "border", or the "reflection" of what lies inside.
        aligned: whether -1 and 1 are the centres of the first and last elements, not their outer edges.
    """

    mode: Literal["nearest", "linear", "cubic"]
    padding: Literal["zeros", "border", "reflection"]
    aligned: bool

    def shape(self, x: Shape, grid: Shape) -> Shape:
        """`[N, C, *results]`."""
        rank = len(x) - 2
        if rank < 1 or len(grid) != len(x) or not (unify_dims(grid[0], x[0]) and unify_dims(grid[-1], rank)):
            raise CompileError(f"the grid {list(grid)} does not fit the input {list(x)}")
        return (*x[:2], *grid[1:-1])

    def lower(self, ctx: Emitter, x: Operand, grid: Operand) -> relax.Expr:
        sizes, dtype = shape_of(x)[2:], dtype_of(x)
        work = "float64" if dtype == "float64" else "float32"

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            x, grid = tensors
            n, c, *out = index
            indices = [
                self._source(grid(n, *out, len(sizes) - 1 - axis).astype(work), size) for axis, size in enumerate(sizes)
            ]

            def read(positions: list[Any]) -> Any:
                return self._element(lambda *inside: x(n, c, *inside).astype(work), positions, sizes, work)

            if self.mode == "nearest":
                return read([_integer(tirx.nearbyint(position)) for position in indices]).astype(dtype)
            if self.mode == "linear":
                indices = [self._moved_inside(position, size) for position, size in zip(indices, sizes, strict=True)]
            return _interpolated(read, indices, self.mode).astype(dtype)

        return ctx.elements(self.shape(shape_of(x), shape_of(grid)), element, x, grid, name="grid_sample")

    def _source(self, value: Any, size: int) -> tirx.Expr:
        """Return the position of a coordinate (-1 to 1 inside), clamped far outside, as it becomes an integer."""
        one, two = _like(value, 1), _like(value, 2)
        if self.aligned:
            position = (value + one) / two * _like(value, size - 1)
        else:
            position = ((value + one) * _like(value, size) - one) / two
        return clamped(position, _like(value, -(1 << 20)), _like(value, 1 << 20))

    def _moved_inside(self, position: Any, size: int) -> tirx.Expr:
        match self.padding:
            case "border":
                return clamped(position, _like(position, 0), _like(position, size - 1))
            case "reflection":
                return self._reflected(position, size)
        return position

    def _reflected(self, position: Any, size: int) -> tirx.Expr:
        known = isinstance(size, int | tirx.IntImm)
        if known and int(size) <= self.aligned:
            return _like(position, 0)
        count = _like(position, size)
        low, high = (_like(position, 0), count - 1) if self.aligned else (_like(position, -0.5), count - 0.5)
        length = high - low
        distance = tirx.abs(position - low)
        turns = tirx.floor(distance / length)
        tail = distance - turns * length
        odd = turns - tirx.floor(turns / _like(position, 2)) * _like(position, 2)
        back = tirx.Select(odd > _like(position, 0.5), length - tail, tail) + low
        inside = clamped(back, _like(position, 0), _like(position, size - 1))
        return inside if known else tirx.Select(length > 0, inside, _like(position, 0))

    def _element(self, x: Callable[..., tirx.Expr], positions: Sequence[Any], sizes: Shape, work: str) -> tirx.Expr:
        """The element at integer positions, by the rule of the padding."""
        pairs = list(zip(positions, sizes, strict=True))
        match self.padding:
            case "zeros":
                inside = [condition for i, size in pairs for condition in (i >= 0, i < size)]
                return tirx.if_then_else(tirx.all(*inside), x(*positions), tirx.const(0, work))
            case "border":
                return x(*(clamped(i, 0, size - 1) for i, size in pairs))
        return x(*(_integer(tirx.nearbyint(self._reflected(i.astype(work), size))) for i, size in pairs))


@dataclass(frozen=True)
class PositionSample(Operator):
    """Interpolates `x`, `[N, C, *spatial]`, linearly at positions that count elements, `[N, *results, rank]`.

    The innermost coordinate of a position comes first. Elements outside of `x` are zeros. `tfa.image.resampler`.

    Attributes:
        bounded: whether the result is zero for positions beyond the centres of the first and last elements.
    """

    bounded: bool = False

    def shape(self, x: Shape, positions: Shape) -> Shape:
        """`[N, C, *results]`."""
        return GridSample("linear", "zeros", True).shape(x, positions)

    def lower(self, ctx: Emitter, x: Operand, positions: Operand) -> relax.Expr:
        sizes, dtype = shape_of(x)[2:], dtype_of(x)

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            x, positions = tensors
            n, c, *out = index
            found = [positions(n, *out, len(sizes) - 1 - axis).astype(dtype) for axis in range(len(sizes))]

            def read(indices: list[Any]) -> Any:
                inside = [bound for i, size in zip(indices, sizes, strict=True) for bound in (i >= 0, i < size)]
                return tirx.if_then_else(tirx.all(*inside), x(n, c, *indices), tirx.const(0, dtype))

            pairs = list(zip(found, sizes, strict=True))
            value = _interpolated(read, [clamped(p, _like(p, -2), _like(p, size + 1)) for p, size in pairs])
            if not self.bounded:
                return value
            inside = [bound for p, size in pairs for bound in (p >= _like(p, 0), p <= _like(p, size - 1))]
            return tirx.Select(tirx.all(*inside), value, _like(value, 0))

        return ctx.elements(self.shape(shape_of(x), shape_of(positions)), element, x, positions, name="position_sample")

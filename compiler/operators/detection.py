"""Regions of interest, and sampling at positions that are computed.

Positions come from the data: whatever they are, nothing outside a tensor is read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tvm import relax, te, tirx

from nnefc.agreement import agree, agree_all
from nnefc.diagnostics import CompileError
from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, is_empty, shape_of, zeros
from nnefc.sizes import Size

__all__ = ["GridSample", "RoiAlign", "RoiPool", "RoiResample"]


def _clamped(value: Any, low: Any, high: Any) -> tirx.Expr:
    return tirx.max(tirx.min(value, high), low)


def _integer(value: Any) -> tirx.Expr:
    return value.astype("int32")


def _rounded(value: Any) -> tirx.Expr:
    """The nearest integer, of two the one that is farther from zero; `tirx.round` takes the even one."""
    size = tirx.abs(value)
    whole = tirx.floor(size)
    nearest = _integer(whole) + _integer(size - whole >= _like(value, 0.5))
    return tirx.Select(value < _like(value, 0), -nearest, nearest)


def _like(x: Any, value: float) -> tirx.Expr:
    """A constant, or a size, of the element type of an expression."""
    dtype = str(x.expr_ty().dtype)
    if isinstance(value, int | float):
        return tirx.const(value, dtype)
    size: tirx.Expr = value.expr if isinstance(value, Size) else value
    return size.astype(dtype)


def _cubic(rest: tirx.Expr) -> list[tirx.Expr]:
    """Keys, "Cubic convolution interpolation for digital image processing" (1981), with the coefficient -0.75."""
    a, one = -0.75, _like(rest, 1)

    def far(d: Any) -> Any:
        return ((_like(d, a) * d - _like(d, 5 * a)) * d + _like(d, 8 * a)) * d - _like(d, 4 * a)

    def near(d: Any) -> Any:
        return ((_like(d, a + 2) * d - _like(d, a + 3)) * d) * d + one

    return [far(rest + one), near(rest), near(one - rest), far(_like(rest, 2) - rest)]


_TAPS: dict[str, tuple[int, Callable[[tirx.Expr], list[tirx.Expr]]]] = {
    "linear": (0, lambda rest: [_like(rest, 1) - rest, rest]),
    "cubic": (-1, _cubic),
}
"""The first item that is read, counted from the one before the place, and the weights of it and those that follow."""


def _interpolated(
    read: Callable[[list[Any]], tirx.Expr],
    places: Sequence[tirx.Expr],
    mode: str = "linear",
    combine: Callable[[Any, Any], Any] = operator.add,
) -> tirx.Expr:
    """The weighted items around a place between them, added up; `read` gives the item at integer positions."""
    start, weights_at = _TAPS[mode]
    floors = [tirx.floor(place) for place in places]
    weights = [weights_at(place - floor) for place, floor in zip(places, floors, strict=True)]

    def along(axis: int, positions: list[Any]) -> Any:
        if axis == len(places):
            return read(positions)
        first, total = _integer(floors[axis]) + start, None
        for step, weight in enumerate(weights[axis]):
            part = along(axis + 1, [*positions, first + step]) * weight
            total = part if total is None else combine(total, part)
        return total

    return along(0, [])


@dataclass(frozen=True)
class _Regions(Operator):
    """What computations over regions of `x`, `[N, C, H, W]`, have in common.

    Regions `[n, 4]` are boxes (x1, y1, x2, y2), and a vector says of which batch item each is. Without it, regions are
    `[n, 5]` and begin with the batch item.

    Attributes:
        results: rows and columns of the result of each region.
    """

    results: tuple[int, int]

    def shape(self, x: Shape, rois: Shape, batch: Shape | None = None) -> Shape:
        """`[n, C, *results]`."""
        width = 5 if batch is None else 4
        if (
            len(x) != 4
            or len(rois) != 2
            or not agree(rois[1], width)
            or (batch is not None and not agree_all(batch, rois[:1]))
        ):
            items = "" if batch is None else f", and their batch items {list(batch)},"
            raise CompileError(f"the input {list(x)} and the regions {list(rois)}{items} have the wrong shapes")
        if len(self.results) != 2 or min(self.results) < 1:
            raise CompileError(f"regions cannot become {list(self.results)} rows and columns")
        return (rois[0], x[1], *self.results)

    def _image(self, n: Any, images: int, rois: te.Tensor, batch: Sequence[te.Tensor]) -> tirx.Expr:
        """The batch item that region `n` is of."""
        return _clamped(_integer(batch[0](n) if batch else rois(n, 0)), 0, images - 1)

    def _edges(self, n: Any, axis: int, rois: te.Tensor, batch: Sequence[te.Tensor]) -> tuple[Any, Any]:
        """Where region `n` begins and ends along a spatial axis (0: y, 1: x)."""
        first = 0 if batch else 1
        return rois(n, first + 1 - axis), rois(n, first + 3 - axis)

    def _built(
        self, at: Emitter, build: Callable[..., te.Tensor], name: str, x: Operand, rois: Operand, batch: Operand | None
    ) -> Operand:
        shape = self.shape(shape_of(x), shape_of(rois), None if batch is None else shape_of(batch))
        if is_empty(shape):
            return zeros(shape, at.number(0, x).dtype)
        return at.compute(build, x, rois, *([] if batch is None else [batch]), name=name)


@dataclass(frozen=True)
class RoiPool(_Regions):
    """The largest item, or the mean, of each of `results` bins of each region; a bin outside the input gives 0.

    Bins are of whole items and may overlap (Girshick, "Fast R-CNN", 2015). ONNX `MaxRoiPool`; NNEF `max_roi_pool`,
    `avg_roi_pool`.

    Attributes:
        average: means, not maxima.
        scale: what edges of regions are multiplied by before they are rounded to whole items.
        inclusive: whether the end of a region belongs to it; a region has one item at least.
    """

    average: bool = False
    scale: float = 1.0
    inclusive: bool = False

    def lower(self, at: Emitter, x: Operand, rois: Operand, batch: Operand | None = None) -> Operand:
        return self._built(at, self._pool, "avg_roi_pool" if self.average else "max_roi_pool", x, rois, batch)

    def _bin(self, edges: tuple[Any, Any], place: Any, bins: int, size: int) -> tuple[Any, Any]:
        """Begin and end of one bin along an axis, cut off at the border of the input."""
        first, last = (_rounded(edge * _like(edge, self.scale)) for edge in edges)
        span = tirx.max(last - first + int(self.inclusive), 1)
        begin = first + tirx.floordiv(place * span, bins)
        end = first - tirx.floordiv(-(place + 1) * span, bins)
        return tirx.max(begin, 0), tirx.min(end, size)

    def _pool(self, x: te.Tensor, rois: te.Tensor, *batch: te.Tensor) -> te.Tensor:
        images, _, *sizes = x.shape
        axes = [te.reduce_axis((0, size), name) for size, name in zip(sizes, ("row", "column"), strict=True)]
        result = (rois.shape[0], x.shape[1], *self.results)
        outside = tirx.const(0, x.dtype) if self.average else te.min_value(x.dtype)

        def bounds(n: Any, places: Sequence[Any]) -> list[tuple[Any, Any]]:
            parts = enumerate(zip(places, self.results, sizes, strict=True))
            return [self._bin(self._edges(n, a, rois, batch), _integer(p), bins, size) for a, (p, bins, size) in parts]

        def gather(n: Any, c: Any, *places: Any) -> Any:
            inside = [
                condition
                for axis, (begin, end) in zip(axes, bounds(n, places), strict=True)
                for condition in (_integer(axis.var) >= begin, _integer(axis.var) < end)
            ]
            value = tirx.if_then_else(tirx.all(*inside), x(self._image(n, images, rois, batch), c, *axes), outside)
            return (te.sum if self.average else te.max)(value, axis=axes)

        gathered = te.compute(result, gather, name="roi_bins")

        def finish(n: Any, c: Any, *places: Any) -> Any:
            rows, columns = (tirx.max(end - begin, 0) for begin, end in bounds(n, places))
            value = gathered(n, c, *places)
            if self.average:
                value = value / tirx.max(rows * columns, 1).astype(x.dtype)
            return tirx.Select(rows * columns > 0, value, tirx.const(0, x.dtype))

        return te.compute(result, finish, name="roi_pool")


@dataclass(frozen=True)
class RoiAlign(_Regions):
    """The mean, or the largest, of samples between the items in each of `results` bins of each region.

    He, Gkioxari, Dollár, Girshick, "Mask R-CNN" (2017); ONNX `RoiAlign`, whose maximum is that of the weighted items.

    Attributes:
        average: means, not maxima.
        samples: along each axis of a bin; 0: as many as the bin has items, rounded up.
        scale: what edges of regions are multiplied by.
        half_pixel: whether edges are then shifted by half an item; else regions have one item at least.
    """

    average: bool
    samples: int
    scale: float
    half_pixel: bool

    def lower(self, at: Emitter, x: Operand, rois: Operand, batch: Operand | None = None) -> Operand:
        return self._built(at, self._align, "roi_align", x, rois, batch)

    def _bins(self, edges: tuple[Any, Any], bins: int, most: int) -> tuple[Any, Any, Any]:
        """Where the first bin begins, the size of each, and its samples."""
        shift = 0.5 if self.half_pixel else 0.0
        start, end = (edge * _like(edge, self.scale) - _like(edge, shift) for edge in edges)
        length = end - start if self.half_pixel else tirx.max(end - start, _like(start, 1))
        size = length / _like(start, bins)
        if self.samples:
            return start, size, tirx.const(self.samples, "int32")
        return start, size, _clamped(_integer(tirx.ceil(size)), 0, most)

    def _align(self, x: te.Tensor, rois: te.Tensor, *batch: te.Tensor) -> te.Tensor:
        images, _, *sizes = x.shape
        dtype, zero = x.dtype, tirx.const(0, x.dtype)
        # The number of samples may depend on the region: then loops run to the most there can be.
        parts = [-(-size // bins) * 4 for size, bins in zip(sizes, self.results, strict=True)]
        most = self.samples or max(parts)
        axes = [te.reduce_axis((0, most), name) for name in ("sy", "sx")]

        def item(n: Any, c: Any, *places: Any) -> Any:
            sampled, inside, count, positions = [], [], tirx.const(1, "int32"), []
            for a, (axis, place, bins, size) in enumerate(zip(axes, places, self.results, sizes, strict=True)):
                start, width, samples = self._bins(self._edges(n, a, rois, batch), bins, most)
                part = (axis.var.astype(dtype) + tirx.const(0.5, dtype)) * width / tirx.max(samples, 1).astype(dtype)
                position = start + place.astype(dtype) * width + part
                sampled.append(axis.var < samples)
                inside += [position >= tirx.const(-1, dtype), position <= size.astype(dtype)]
                count = count * samples
                positions.append(_clamped(position, zero, (size - 1).astype(dtype)))

            def read(at: list[Any]) -> Any:
                within = [_clamped(p, 0, size - 1) for p, size in zip(at, sizes, strict=True)]
                return x(self._image(n, images, rois, batch), c, *within)

            value = _interpolated(read, positions, combine=operator.add if self.average else tirx.max)
            value = tirx.if_then_else(tirx.all(*sampled, *inside), value, zero)
            if self.average:
                return te.sum(value / tirx.max(count, 1).astype(dtype), axis=axes)
            return te.max(tirx.if_then_else(tirx.all(*sampled), value, te.min_value(dtype)), axis=axes)

        return te.compute((rois.shape[0], x.shape[1], *self.results), item, name="roi_align")


@dataclass(frozen=True)
class RoiResample(_Regions):
    """Each region resized linearly to `results`; beyond the input its border goes on. NNEF `roi_resample`.

    Attributes:
        method: where results lie between the edges: "symmetric", "asymmetric" or "aligned", as in NNEF's upsampling.
    """

    method: str

    def lower(self, at: Emitter, x: Operand, rois: Operand, batch: Operand | None = None) -> Operand:
        return self._built(at, self._resample, "roi_resample", x, rois, batch)

    def _source(self, edges: tuple[Any, Any], place: Any, count: int) -> Any:
        first, last = edges
        span, place, half = last - first, place.astype(str(first.expr_ty().dtype)), _like(first, 0.5)
        match self.method:
            case "symmetric":
                return first + (place + half) * span / _like(first, count) - half
            case "asymmetric":
                return first + place * span / _like(first, count)
            case _:
                return first + place * (span - _like(first, 1)) / _like(first, max(1, count - 1))

    def _resample(self, x: te.Tensor, rois: te.Tensor, *batch: te.Tensor) -> te.Tensor:
        images, _, *sizes = x.shape

        def item(n: Any, c: Any, *places: Any) -> Any:
            sources = [
                _clamped(
                    self._source(self._edges(n, axis, rois, batch), place, count),
                    tirx.const(0, rois.dtype),
                    (size - 1).astype(rois.dtype),
                )
                for axis, (place, count, size) in enumerate(zip(places, self.results, sizes, strict=True))
            ]

            def read(at: list[Any]) -> Any:
                within = [_clamped(p, 0, size - 1) for p, size in zip(at, sizes, strict=True)]
                return x(self._image(n, images, rois, batch), c, *within)

            return _interpolated(read, sources)

        return te.compute((rois.shape[0], x.shape[1], *self.results), item, name="roi_resample")


@dataclass(frozen=True)
class GridSample(Operator):
    """The items of `x`, `[N, C, *spatial]`, at the places that a grid `[N, *results, rank]` says.

    A place is from -1 to 1 along each dimension, the innermost first. Jaderberg et al., "Spatial Transformer Networks"
    (2015); ONNX `GridSample`, `torch.nn.functional.grid_sample`.

    Attributes:
        mode: between items, the "nearest" one, or "linear" or "cubic" interpolation.
        padding: what lies outside: "zeros", the "border", or the "reflection" of what lies inside.
        aligned: whether -1 and 1 are the centres of the first and last items, not their outer edges.
    """

    mode: Literal["nearest", "linear", "cubic"]
    padding: Literal["zeros", "border", "reflection"]
    aligned: bool

    def shape(self, x: Shape, grid: Shape) -> Shape:
        """`[N, C, *results]`."""
        rank = len(x) - 2
        if rank < 1 or len(grid) != len(x) or not (agree(grid[0], x[0]) and agree(grid[-1], rank)):
            raise CompileError(f"the grid {list(grid)} does not fit the input {list(x)}")
        return (*x[:2], *grid[1:-1])

    def lower(self, at: Emitter, x: Operand, grid: Operand) -> relax.Expr:
        sizes, dtype = shape_of(x)[2:], dtype_of(x)
        work = "float64" if dtype == "float64" else "float32"

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            x, grid = tensors
            n, c, *out = index
            places = [
                self._source(grid(n, *out, len(sizes) - 1 - axis).astype(work), size) for axis, size in enumerate(sizes)
            ]

            def read(positions: list[Any]) -> Any:
                return self._item(lambda *inside: x(n, c, *inside).astype(work), positions, sizes, work)

            if self.mode == "nearest":
                return read([_integer(tirx.nearbyint(place)) for place in places]).astype(dtype)
            if self.mode == "linear":
                places = [self._moved_inside(place, size) for place, size in zip(places, sizes, strict=True)]
            return _interpolated(read, places, self.mode).astype(dtype)

        return at.elements(self.shape(shape_of(x), shape_of(grid)), element, x, grid, name="grid_sample")

    def _source(self, value: Any, size: int) -> tirx.Expr:
        """From -1 … 1 to positions; those far outside are cut, because they become integers."""
        one, two = _like(value, 1), _like(value, 2)
        if self.aligned:
            place = (value + one) / two * _like(value, size - 1)
        else:
            place = ((value + one) * _like(value, size) - one) / two
        return _clamped(place, _like(value, -(1 << 20)), _like(value, 1 << 20))

    def _moved_inside(self, place: Any, size: int) -> tirx.Expr:
        match self.padding:
            case "border":
                return _clamped(place, _like(place, 0), _like(place, size - 1))
            case "reflection":
                return self._reflected(place, size)
        return place

    def _reflected(self, place: Any, size: int) -> tirx.Expr:
        known = isinstance(size, int | tirx.IntImm)
        if known and int(size) <= self.aligned:
            return _like(place, 0)
        count = _like(place, size)
        low, high = (_like(place, 0), count - 1) if self.aligned else (_like(place, -0.5), count - 0.5)
        length = high - low
        distance = tirx.abs(place - low)
        turns = tirx.floor(distance / length)
        rest = distance - turns * length
        odd = turns - tirx.floor(turns / _like(place, 2)) * _like(place, 2)
        back = tirx.Select(odd > _like(place, 0.5), length - rest, rest) + low
        inside = _clamped(back, _like(place, 0), _like(place, size - 1))
        return inside if known else tirx.Select(length > 0, inside, _like(place, 0))

    def _item(self, x: Callable[..., tirx.Expr], positions: Sequence[Any], sizes: Shape, work: str) -> tirx.Expr:
        """The item at integer positions, by the rule of the padding."""
        pairs = list(zip(positions, sizes, strict=True))
        match self.padding:
            case "zeros":
                inside = [condition for i, size in pairs for condition in (i >= 0, i < size)]
                return tirx.if_then_else(tirx.all(*inside), x(*positions), tirx.const(0, work))
            case "border":
                return x(*(_clamped(i, 0, size - 1) for i, size in pairs))
        return x(*(_integer(tirx.nearbyint(self._reflected(i.astype(work), size))) for i, size in pairs))

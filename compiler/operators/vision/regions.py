"""Pools regions of interest: the mean or max of the elements in the bins of each box.

Bins are products of rows and columns, and the weights of rows do not depend on the columns:

    for each region, along both axes:
        list for each bin the positions that it reads, and their weights
    for each region and channel, for each row of bins:
        for 16 columns at a time:
            sums[column] = Σ weight[row] · x[row, column]      over the rows that are listed
        for each bin:
            result = Σ weight[column] · sums[column]           over the columns that are listed

So each bin costs what it covers, however large the regions are. Positions come from the data: whatever they are,
nothing outside a tensor is read.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, is_empty, shape_of, zeros
from nnefc.operators.math.reducers import minimum_reducer
from nnefc.operators.statements import T, each, hinted, looped
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, expression, size_hint
from nnefc.symbolic.dims import minimum as minimum_size
from nnefc.symbolic.unification import unify_dims, unify_shapes

__all__ = ["Regions", "RoiAlign", "RoiPool", "clamped"]

_LANES = 16
"""Columns that are added up side by side."""

_COLUMNS = 64
"""Columns whose sums over the rows of a bin are kept for the bins next to it."""

_FARTHEST = float(1 << 30)
"""How far from the input edges of regions may be, in elements; others are moved there."""

_FIRST, _BEHIND, _BEYOND, _FIELDS = range(4)
"""The fields of a bin: its first position in the list, the one after its last, and whether a sample lies outside."""


def clamped(value: Any, low: Any, high: Any) -> tirx.Expr:
    """The nearest value of a range; `high` for NaN."""
    return tirx.max(tirx.min(value, high), low)


@dataclass(frozen=True)
class Regions(Operator):
    """The base of computations over regions of `x`, `[N, C, H, W]`.

    Regions `[n, 4]` are boxes (x1, y1, x2, y2), and a vector holds the batch element of each. Without it, regions
    are `[n, 5]` and begin with the batch element.

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
            or not unify_dims(rois[1], width)
            or (batch is not None and not unify_shapes(batch, rois[:1]))
        ):
            elements = "" if batch is None else f", and their batch elements {list(batch)},"
            raise CompileError(f"the input {list(x)} and the regions {list(rois)}{elements} have the wrong shapes")
        if len(self.results) != 2 or min(self.results) < 1:
            raise CompileError(f"regions cannot become {list(self.results)} rows and columns")
        return (rois[0], x[1], *self.results)


def _int64(value: Any) -> tirx.Expr:
    return tirx.const(value, "int64") if isinstance(value, int) else value.astype("int64")


def _counter(dtype: str = "int64") -> Any:
    """A thread-local variable."""
    return T.buffer_proxy(T.alloc_buffer((1,), dtype, scope="local"))


def _kept(value: Any) -> Any:
    """Store a value in a local buffer and return its load: TVM fails for floats that are bound to a variable."""
    index = _counter(str(value.ty))
    index[0] = value
    return index[0]


def _whole(value: Any) -> Any:
    """A real number as an integer."""
    return _kept(_int64(value))


@dataclass(frozen=True, eq=False)
class _Axis:
    """The lists of one region along an axis.

    Attributes:
        size: of the input along the axis.
        bins: how many the region has.
        edges: where the region begins and ends.
        table: int64; `_FIELDS` numbers for each bin, from `first` on.
        positions, weights: the lists; what they have of this axis is from `begin` on, in `room` elements.
        counts: how many samples a bin has, at `position`.
    """

    size: Dimension
    bins: int
    edges: tuple[Any, Any]
    table: Any
    first: Any
    positions: Any
    weights: Sequence[Any]
    begin: Any
    room: Dimension
    counts: Any
    position: Any

    def of(self, bin_: Any, field: int) -> Any:
        """Returns the index of a bin's field in the table."""
        return self.first + bin_ * _FIELDS + field


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over the rows of a bin, of `_COLUMNS` columns, from `first` up to `behind`; or what is the largest there.

    Attributes:
        elements: the sums.
        first, behind: variables.
        start: the sum of nothing.
    """

    elements: Any
    first: Any
    behind: Any
    start: Any


def _usual(axis: _Axis) -> int:
    """Returns how many positions a bin has in usual regions: of half the input."""
    return 2 + size_hint(axis.size) // (2 * axis.bins)


class _Pooled(Regions):
    """The base of poolings of regions.

    Attributes:
        average: whether to compute means, not maxima.
    """

    average: bool

    @property
    @abstractmethod
    def _weights(self) -> int:
        """How many weights each position has."""

    @abstractmethod
    def _room(self, size: Dimension, bins: int) -> Dimension:
        """Returns how many positions all bins along an axis may have."""

    @abstractmethod
    def _list(self, axis: _Axis, work: str) -> None:
        """Fill the lists of a region along an axis, and the table and the count of its samples."""

    @abstractmethod
    def _weighted(self, element: Any, weights: Sequence[Any]) -> Any:
        """An element, as much as it counts."""

    @abstractmethod
    def _finished(self, made: Any, axes: Sequence[_Axis], positions: Sequence[Any]) -> Any:
        """The result of a bin, of what its elements come to."""

    def lower(self, ctx: Emitter, x: Operand, rois: Operand, batch: Operand | None = None) -> Operand:
        shape = self.shape(shape_of(x), shape_of(rois), None if batch is None else shape_of(batch))
        if is_empty((*shape, *shape_of(x))):
            return zeros(shape, ctx.number(0, x).dtype)
        (count, channels), sizes = shape[:2], shape_of(x)[2:]
        work = "float64" if dtype_of(x) == "float64" else "float32"
        rooms = [self._room(size, bins) for size, bins in zip(sizes, self.results, strict=True)]
        results = [
            (shape, dtype_of(x)),
            ((count, sum(self.results) * _FIELDS), "int64"),
            ((count, sum(rooms)), "int64"),
            ((count, 2), work),
            *[((count, sum(rooms)), work)] * self._weights,
        ]
        width = 5 if batch is None else 4

        def write(x: Any, rois: Any, *buffers: Any) -> None:
            *images, out, table, positions, counts = buffers[: len(buffers) - self._weights]
            weights = buffers[len(buffers) - self._weights :]

            def axes_of(region: Any) -> list[_Axis]:
                found = []
                for n in range(2):
                    edges = tuple(
                        clamped(rois[region * width + index].astype(work), *_limits(work))
                        for index in (width - 3 - n, width - 1 - n)
                    )
                    first = (region * sum(self.results) + n * self.results[0]) * _FIELDS
                    begin, index = region * sum(rooms) + n * rooms[0], region * 2 + n
                    found.append(
                        _Axis(sizes[n], self.results[n], edges, table, first, positions, weights, begin, rooms[n],
                              counts, index)
                    )  # fmt: skip
                return found

            with each(count, count * sum(rooms) * 4) as region:
                for axis in axes_of(region):
                    self._list(axis, work)
            work_of_line = math.prod(self.results) * 4 + sum(map(size_hint, sizes))
            with each(count * channels, count * channels * work_of_line) as line:
                region = T.bind(tirx.floordiv(line, channels))
                image = images[0][region] if images else rois[region * width]
                image = clamped(_whole(image), _int64(0), expression(shape_of_x[0] - 1))
                plane = T.bind((image * channels + tirx.floormod(line, channels)) * math.prod(sizes))
                self._pool(x, plane, out, line, axes_of(region), work)

        shape_of_x = shape_of(x)
        return looped(ctx, write, [x, rois, *([] if batch is None else [batch])], results, self._name)[0]

    @property
    def _name(self) -> str:
        return type(self).__name__.lower()

    def _pool(self, x: Any, plane: Any, out: Any, line: Any, axes: Sequence[_Axis], work: str) -> None:
        """All bins of a region of one channel."""
        rows, columns = axes
        sums = _Sums(
            T.buffer_proxy(T.alloc_buffer((_COLUMNS,), work, scope="local")), _counter(), _counter(),
            tirx.const(0, work) if self.average else minimum_reducer(work),
        )  # fmt: skip
        total = _counter(work)
        with T.serial(0, rows.bins) as row:
            sums.first[0] = _int64(0)
            sums.behind[0] = _int64(-1)
            with T.serial(0, columns.bins) as column:
                total[0] = sums.start
                self._gather(x, plane, axes, (row, column), sums, total)
                made = self._finished(total[0], axes, (row, column))
                out[(line * rows.bins + row) * columns.bins + column] = made.astype(out.dtype)

    def _gather(self, x: Any, plane: Any, axes: Sequence[_Axis], bin_: Sequence[Any], sums: _Sums, total: Any) -> None:
        """Add what lies in a bin to `total`."""
        columns = axes[1]
        (top, bottom), (left, right) = (
            tuple(T.bind(axis.table[axis.of(index, field)]) for field in (_FIRST, _BEHIND))
            for axis, index in zip(axes, bin_, strict=True)
        )
        with T.If(tirx.all(top < bottom, left < right)), T.Then():
            begin = T.bind(columns.positions[left])
            behind = T.bind(columns.positions[right - 1] + 1)
            end = T.bind(
                tirx.max(behind, columns.positions[columns.table[columns.of(columns.bins - 1, _BEHIND)] - 1] + 1)
            )
            with hinted(tirx.floordiv(behind - begin + (_COLUMNS - 1), _COLUMNS), 1) as strip:
                first = T.bind(begin + strip * _COLUMNS)
                last = T.bind(tirx.min(behind, first + _COLUMNS))
                there = tirx.all(first >= sums.first[0], last <= sums.behind[0])
                with T.If(tirx.Not(there)), T.Then():
                    sums.first[0] = first
                    sums.behind[0] = tirx.min(end, first + _COLUMNS)
                    self._add_rows(x, plane, axes, (top, bottom), sums)
                with hinted(right - left, _usual(columns)) as step:
                    column = T.bind(columns.positions[left + step])
                    with T.If(tirx.all(column >= first, column < last)), T.Then():
                        weights = [buffer[left + step] for buffer in columns.weights]
                        element = self._weighted(sums.elements[column - sums.first[0]], weights)
                        total[0] = self._joined(total[0], element)

    def _add_rows(self, x: Any, plane: Any, axes: Sequence[_Axis], listed: Sequence[Any], sums: _Sums) -> None:
        """Let the sums be those of the rows that are listed, in the columns from `first` up to `behind`."""
        rows, columns = axes
        top, bottom = listed
        count = T.bind(sums.behind[0] - sums.first[0])

        def add(part: Any, lanes: Any) -> None:
            with T.serial(0, _LANES) as lane:
                sums.elements[part * _LANES + lane] = sums.start
            with hinted(bottom - top, _usual(rows)) as step:
                here = T.bind(plane + rows.positions[top + step] * columns.size + sums.first[0] + part * _LANES)
                weights = [T.bind(buffer[top + step]) for buffer in rows.weights]
                with T.serial(0, lanes) if isinstance(lanes, int) else hinted(lanes, _LANES) as lane:
                    element = self._weighted(x[here + lane].astype(sums.elements.dtype), weights)
                    sums.elements[part * _LANES + lane] = self._joined(sums.elements[part * _LANES + lane], element)

        with hinted(tirx.floordiv(count + (_LANES - 1), _LANES), 2) as part:
            last = plane + rows.positions[bottom - 1] * columns.size + sums.first[0] + (part + 1) * _LANES
            with T.If(last <= x.shape[0]):
                with T.Then():
                    add(part, _LANES)
                with T.Else():
                    add(part, tirx.min(count - part * _LANES, _int64(_LANES)))

    def _joined(self, one: Any, other: Any) -> Any:
        return one + other if self.average else tirx.max(one, other)


def _limits(work: str) -> tuple[tirx.Expr, tirx.Expr]:
    return tirx.const(-_FARTHEST, work), tirx.const(_FARTHEST, work)


def _rounded(value: Any, work: str) -> tirx.Expr:
    """The nearest integer, of two the one that is farther from zero; `tirx.round` takes the even one."""
    size = tirx.abs(value)
    whole = tirx.floor(size)
    nearest = _int64(whole) + _int64(size - whole >= tirx.const(0.5, work))
    return tirx.Select(value < tirx.const(0, work), -nearest, nearest)


@dataclass(frozen=True)
class RoiPool(_Pooled):
    """The largest element, or the mean, of each of `results` bins of each region; a bin outside the input gives 0.

    Bins are of whole elements and may overlap (Girshick, "Fast R-CNN", 2015). ONNX `MaxRoiPool`; NNEF `max_roi_pool`,
    `avg_roi_pool`.

    Attributes:
        average: whether to compute means, not maxima.
        scale: what edges of regions are multiplied by before they are rounded to whole elements.
        inclusive: whether the end of a region belongs to it; a region has one element at least.
    """

    average: bool = False
    scale: float = 1.0
    inclusive: bool = False

    @property
    def _weights(self) -> int:
        return 0

    def _room(self, size: Dimension, bins: int) -> Dimension:
        return size + 2 * bins  # neighbours share one element at most, and where bins are small each has one or two

    def _list(self, axis: _Axis, work: str) -> None:
        limits = _limits(work)
        scaled = (clamped(edge * tirx.const(self.scale, work), *limits) for edge in axis.edges)
        first, last = (_whole(_rounded(edge, work)) for edge in scaled)
        span = T.bind(tirx.max(last - first + int(self.inclusive), _int64(1)))
        used = _counter()
        used[0] = axis.begin
        with T.serial(0, axis.bins) as bin_:
            begin = T.bind(tirx.max(first + tirx.floordiv(_int64(bin_) * span, axis.bins), _int64(0)))
            end = first - tirx.floordiv(-(_int64(bin_) + 1) * span, axis.bins)
            elements = T.bind(tirx.max(tirx.min(end, expression(axis.size)) - begin, _int64(0)))
            axis.table[axis.of(bin_, _FIRST)] = used[0]
            with hinted(elements, _usual(axis)) as element:
                axis.positions[used[0] + element] = begin + element
            used[0] = used[0] + elements
            axis.table[axis.of(bin_, _BEHIND)] = used[0]

    def _weighted(self, element: Any, weights: Sequence[Any]) -> Any:
        return element

    def _finished(self, made: Any, axes: Sequence[_Axis], positions: Sequence[Any]) -> Any:
        lengths = (
            axis.table[axis.of(index, _BEHIND)] - axis.table[axis.of(index, _FIRST)]
            for axis, index in zip(axes, positions, strict=True)
        )
        elements = T.bind(math.prod(lengths))
        if self.average:
            made = made / tirx.max(elements, _int64(1)).astype(str(made.ty))
        return tirx.Select(elements > 0, made, tirx.const(0, str(made.ty)))


@dataclass(frozen=True)
class RoiAlign(_Pooled):
    """The mean, or the largest, of samples between the elements in each of `results` bins of each region.

    He, Gkioxari, Dollár, Girshick, "Mask R-CNN" (2017); ONNX `RoiAlign`, whose maximum is that of the weighted
    elements. Samples that are farther than one element outside of the input count as 0.

    Attributes:
        average: whether to compute means, not maxima.
        samples: along each axis of a bin; 0: as many as the bin has elements, rounded up.
        scale: what edges of regions are multiplied by.
        half_pixel: whether edges are then shifted by half an element; else regions have one element at least.
    """

    average: bool
    samples: int
    scale: float
    half_pixel: bool

    @property
    def _weights(self) -> int:
        """The sum of those that samples give an element; the largest and the smallest, of maxima."""
        return 1 if self.average else 2

    def _room(self, size: Dimension, bins: int) -> Dimension:
        maximum = size + 2 * bins  # neighbours share two elements at most
        return minimum_size(maximum, 2 * self.samples * bins) if self.samples else maximum

    def _list(self, axis: _Axis, work: str) -> None:
        def real(value: float) -> tirx.Expr:
            return tirx.const(value, work)

        size = expression(axis.size)
        begin, end = (edge * real(self.scale) - real(0.5 if self.half_pixel else 0.0) for edge in axis.edges)
        start, length = _kept(begin), end - begin
        width = _kept((length if self.half_pixel else tirx.max(length, real(1))) / real(axis.bins))
        count = real(self.samples) if self.samples else clamped(tirx.ceil(width), real(0), real(_FARTHEST))
        samples = _kept(count)
        axis.counts[axis.position] = samples
        step = _kept(width / tirx.max(samples, real(1)))
        used, inside = _counter(), _counter()
        used[0] = axis.begin
        with T.serial(0, axis.bins) as bin_:
            base = _kept(start + _int64(bin_).astype(work) * width)
            first, number = self._numbers(base, step, samples, size, work)
            none_before = T.bind(used[0])
            axis.table[axis.of(bin_, _FIRST)] = none_before
            inside[0] = _int64(0)
            with hinted(number, self.samples or _usual(axis)) as sample:
                forward = first + sample
                # In the order of their positions.
                sample_number = tirx.Select(width < real(0), _int64(samples) - 1 - forward, forward)
                part = (sample_number.astype(work) + real(0.5)) * width / tirx.max(samples, real(1))
                position = _kept(base + part)
                with T.If(tirx.all(position >= real(-1), position <= size.astype(work))), T.Then():
                    inside[0] = inside[0] + 1
                    index = _kept(clamped(position, real(0), (size - 1).astype(work)))
                    before = _whole(tirx.floor(index))
                    share = _kept(index - before.astype(work))
                    self._add(axis, used, none_before, before, real(1) - share)
                    self._add(axis, used, none_before, T.bind(tirx.min(before + 1, size - 1)), share)
            axis.table[axis.of(bin_, _BEHIND)] = used[0]
            beyond = tirx.any(inside[0].astype(work) < samples, samples < real(1))
            axis.table[axis.of(bin_, _BEYOND)] = _int64(beyond)

    def _numbers(self, base: Any, step: Any, samples: Any, size: Any, work: str) -> tuple[Any, Any]:
        """The first sample of a bin that may lie inside, and how many there may be: no more than twice the elements."""
        if self.samples:
            return _int64(0), _int64(self.samples)
        low, high = (tirx.const(-1, work) - base) / step, (size.astype(work) - base) / step
        zero, two = tirx.const(0, work), tirx.const(2, work)
        first = _whole(clamped(tirx.floor(low) - two, zero, samples))
        behind = _whole(clamped(tirx.ceil(high) + two, zero, samples))
        return first, _kept(clamped(behind - first, _int64(0), 2 * size + 8))

    def _add(self, axis: _Axis, used: Any, none_before: Any, position: Any, weight: Any) -> None:
        """Let a position of the bin count more: one of the last two of its list, or a new one."""
        last, other = T.bind(used[0] - 1), T.bind(used[0] - 2)
        is_last, is_other = (
            tirx.all(index >= none_before, axis.positions[tirx.max(index, axis.begin)] == position)
            for index in (last, other)
        )
        with T.If(is_last):
            with T.Then():
                self._merge(axis, last, weight)
            with T.Else(), T.If(is_other):
                with T.Then():
                    self._merge(axis, other, weight)
                with T.Else(), T.If(used[0] < axis.begin + axis.room), T.Then():
                    axis.positions[used[0]] = position
                    for buffer in axis.weights:
                        buffer[used[0]] = weight
                    used[0] = used[0] + 1

    def _merge(self, axis: _Axis, index: Any, weight: Any) -> None:
        joined = (lambda a, b: a + b,) if self.average else (tirx.max, tirx.min)
        for buffer, join in zip(axis.weights, joined, strict=True):
            buffer[index] = join(buffer[index], weight)

    def _weighted(self, element: Any, weights: Sequence[Any]) -> Any:
        if self.average:
            return element * weights[0]
        return element * tirx.Select(element > tirx.const(0, str(element.ty)), *weights)

    def _finished(self, made: Any, axes: Sequence[_Axis], positions: Sequence[Any]) -> Any:
        if self.average:
            samples = math.prod(axis.counts[axis.position] for axis in axes)
            return made / tirx.max(samples, tirx.const(1, str(samples.ty)))
        beyond = (axis.table[axis.of(index, _BEYOND)] > 0 for axis, index in zip(axes, positions, strict=True))
        return tirx.Select(tirx.any(*beyond), tirx.max(made, tirx.const(0, str(made.ty))), made)

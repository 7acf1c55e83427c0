"""Reshapes, slices and pads by tensors known only during the run: kernels compute which sizes the results have.

    target = reshape_sizes(ctx, wanted, shape, …)    int64, resolved: without 0 and -1
    sizes = requested_sizes(ctx, target, "reshape", {})
    y = ctx.apply(ReshapeInRun(sizes), x)

A run fails whose tensors ask for what does not exist, unless a branch is chosen that does not need the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import relax, tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, check_size, shape_of
from nnefc.operators.statements import T, checking, report
from nnefc.operators.tensor.data_dependent_sizes import data_dependent_size, requested_size
from nnefc.operators.tensor.padding import periodic_source
from nnefc.operators.tensor.shape import Reshape, Slice
from nnefc.symbolic.dims import Dimension, expression

__all__ = [
    "PadInRun",
    "ReshapeInRun",
    "SliceInRun",
    "requested_sizes",
    "reshape_sizes",
    "squeeze_sizes",
    "unsqueeze_sizes",
]

_LONG = 1 << 32
"""A step as long as this takes one position of any dimension; no padding is as long."""


@dataclass(frozen=True)
class ReshapeInRun(Reshape):
    """`Reshape` to data-dependent sizes: the caller checks that in each run the number of elements is that of `x`."""

    def shape(self, x: Shape) -> Shape:
        """The target."""
        return check_size(self.target)

    def built(self, ctx: Emitter, x: relax.Expr, shape: Shape) -> relax.Expr:
        """A copy: to TVM, and to the plan of memory, the numbers of elements differ.

        In a branch that is not chosen the sizes are not checked: nothing behind the last element is read.
        """
        elements, is_checked = math.prod(shape_of(x)), not ctx.chosen_by
        flat = ctx.reshaped(x, (elements,))

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            offset: Any = _number(0)
            for position, size in zip(index, shape, strict=True):
                offset = offset * expression(size) + position
            value = tensors[0](offset)
            if is_checked:
                return value
            return tirx.if_then_else(offset < expression(elements), value, tirx.const(0, str(tensors[0].dtype)))

        return ctx.elements(shape, element, flat, name="reshape_in_run")


def requested_sizes(
    ctx: Emitter, target: relax.Expr, name: str, known: Mapping[int, Dimension]
) -> tuple[Dimension, ...]:
    """The elements of a tensor of integers as data-dependent sizes, but for those that are known."""
    found = dict(known)
    for axis in range(shape_of(target)[0]):
        if axis not in found:
            found[axis] = requested_size(ctx, _element(ctx, target, axis), name)
    return tuple(found[axis] for axis in sorted(found))


def _element(ctx: Emitter, tensor: relax.Expr, index: int) -> relax.Expr:
    return ctx.emit(ctx.expr(ctx.apply(Slice({0: (index, 1, 1)}), tensor)))


def reshape_sizes(ctx: Emitter, wanted: relax.Expr, shape: Shape, keep_zero: bool) -> relax.Expr:
    """The sizes that a tensor takes: an int64 tensor, in which nothing is negative.

    Args:
        ctx: where they are computed.
        wanted: integers, `[rank]` with a known rank: one of them may be -1, for what the others leave.
        shape: that of the tensor.
        keep_zero: whether 0 is a size; else it stands for the tensor's own at the same position.
    """
    (rank,), elements = shape_of(wanted), expression(math.prod(shape))

    def resolve(wanted: Any, made: Any, product: Any) -> None:
        """`product` is that of all but -1; beyond the number of elements that number plus 1."""
        product[0] = _number(1)
        for axis in range(rank):
            size = wanted[axis].astype("int64")
            if not keep_zero:
                own = expression(shape[axis]) if axis < len(shape) else _number(-2)
                size = tirx.Select(size == 0, own, size)
            made[axis] = size
            with T.If(made[axis] != -1), T.Then():
                fits = product[0] <= tirx.floordiv(elements, tirx.max(made[axis], _number(1)))
                product[0] = tirx.Select(tirx.any(fits, made[axis] == 0), product[0] * made[axis], elements + 1)

    def write(needed: list[Any], wanted: Any, made: Any, product: Any) -> None:
        resolve(wanted, made, product)
        left = tirx.max(product[0], _number(1))
        missing = sum(
            (tirx.Select(made[axis] == -1, _number(1), _number(0)) for axis in range(rank)),
            _number(0),
        )
        complete = tirx.all(missing == 0, product[0] == elements)
        open_ = tirx.all(missing == 1, product[0] > 0, tirx.floormod(elements, left) == 0)
        valid = tirx.all(*(made[axis] >= -1 for axis in range(rank)), tirx.any(complete, open_))
        product[1] = tirx.Select(valid, _number(1), _number(0))
        with T.If(product[1] == 0), T.Then():
            report(f"Reshape: the data ask for a shape that a tensor of the shape {list(shape)} cannot take", needed)
        for axis in range(rank):
            size = tirx.Select(made[axis] == -1, tirx.floordiv(elements, left), made[axis])
            made[axis] = tirx.Select(product[1] == 0, _number(0), size)

    return ctx.expr(checking(ctx, write, [wanted], [((rank,), "int64"), ((2,), "int64")], "reshape_sizes")[0])


def unsqueeze_sizes(ctx: Emitter, axes: relax.Expr, shape: Shape) -> relax.Expr:
    """The sizes of a tensor with new dimensions of size 1: an int64 tensor.

    Args:
        ctx: where they are computed.
        axes: integers, `[count]` with a known count: where the new ones are in the result; from the end, if negative.
        shape: that of the tensor.
    """
    (count,) = shape_of(axes)
    rank = len(shape) + count

    def write(needed: list[Any], axes: Any, made: Any, state: Any) -> None:
        """`state`: whether an axis is wrong; how many of the tensor's own dimensions have been taken."""
        state[0], state[1] = _number(0), _number(0)
        for axis in range(rank):
            made[axis] = _number(-1)
        for index in range(count):
            given = axes[index].astype("int64")
            found = tirx.Select(given < 0, given + rank, given)
            for axis in range(rank):
                with T.If(found == axis), T.Then():
                    state[0] = tirx.Select(made[axis] == 1, _number(1), state[0])
                    made[axis] = _number(1)
            state[0] = tirx.Select(tirx.any(found < 0, found >= rank), _number(1), state[0])
        for axis in range(rank):
            with T.If(made[axis] == -1), T.Then():
                own: Any = _number(0)
                for position, size in enumerate(shape):
                    own = tirx.Select(state[1] == position, expression(size), own)
                made[axis] = own
                state[1] = state[1] + 1
        with T.If(state[0] != 0), T.Then():
            report(
                f"Unsqueeze: the data ask for axes that a tensor of rank {rank} does not have, or for one twice", needed
            )

    return ctx.expr(checking(ctx, write, [axes], [((rank,), "int64"), ((2,), "int64")], "unsqueeze_sizes")[0])


def squeeze_sizes(ctx: Emitter, axes: relax.Expr, shape: Shape) -> relax.Expr:
    """The sizes of a tensor without some dimensions, whose size must be 1: an int64 tensor.

    Args:
        ctx: where they are computed.
        axes: integers, `[count]` with a known count: which dimensions, no two the same; from the end, if negative.
        shape: that of the tensor.
    """
    (count,), rank = shape_of(axes), len(shape)

    def write(needed: list[Any], axes: Any, made: Any, state: Any) -> None:
        """`state`: which dimensions are left out; how many others there were so far; whether an axis is wrong."""
        for axis in range(rank + 2):
            state[axis] = _number(0)
        for axis in range(rank - count):
            made[axis] = _number(0)
        for index in range(count):
            given = axes[index].astype("int64")
            found = tirx.Select(given < 0, given + rank, given)
            for axis, size in enumerate(shape):
                with T.If(found == axis), T.Then():
                    wrong = tirx.any(state[axis] == 1, expression(size) != 1)
                    state[rank + 1] = tirx.Select(wrong, _number(1), state[rank + 1])
                    state[axis] = _number(1)
            state[rank + 1] = tirx.Select(tirx.any(found < 0, found >= rank), _number(1), state[rank + 1])
        for axis, size in enumerate(shape):
            with T.If(tirx.all(state[axis] == 0, state[rank] < rank - count)), T.Then():
                made[state[rank]] = expression(size)
                state[rank] = state[rank] + 1
        with T.If(state[rank + 1] != 0), T.Then():
            report(f"Squeeze: the data ask for axes that are not of size 1 in {list(shape)}, or for one twice", needed)

    results = [((rank - count,), "int64"), ((rank + 2,), "int64")]
    return ctx.expr(checking(ctx, write, [axes], results, "squeeze_sizes")[0])


@dataclass(frozen=True)
class SliceInRun(Operator):
    """Some positions of some dimensions, as tensors of integers of one length say; positions are clipped.

    Operands are the tensor, the starts, the ends, and, where they are given, the axes and the steps. Negative positions
    and axes count from the end.

    Attributes:
        axes: which dimensions, where that is known.
    """

    axes: Shape | None = None
    moves: ClassVar[bool] = True

    def shape(self, x: Shape, *_others: Any) -> Shape:
        """At most that of the tensor."""
        return x

    def lower(
        self,
        ctx: Emitter,
        x: Operand,
        starts: Operand,
        ends: Operand,
        axes: Operand | None = None,
        steps: Operand | None = None,
    ) -> Operand:
        shape = shape_of(x)
        rank, count = len(shape), expression(shape_of(starts)[0])
        named = None if self.axes is not None else axes
        given = [part for part in (starts, ends, steps, named) if part is not None]

        def write(needed: list[Any], *buffers: Any) -> None:
            """`made`: by dimension the first position, how many, and the step; `state`: whether a dimension has been
            sliced, and at last whether something is wrong.
            """
            *operands, made, state = buffers
            tensors = iter(operands)
            starts, ends = next(tensors), next(tensors)
            strides, where = (None if part is None else next(tensors) for part in (steps, named))
            for axis, size in enumerate(shape):
                made[3 * axis], made[3 * axis + 1] = _number(0), expression(size)
                made[3 * axis + 2], state[axis] = _number(1), _number(0)
            state[rank] = _number(0)

            def one(index: Any, axis: Any) -> None:
                step = _number(1) if strides is None else strides[index].astype("int64")
                found = tirx.Select(axis < 0, axis + rank, axis)
                wrong = tirx.any(found < 0, found >= rank, step == 0)
                state[rank] = tirx.Select(wrong, _number(1), state[rank])
                for dim, size in enumerate(shape):
                    with T.If(tirx.all(found == dim, step != 0)), T.Then():
                        state[rank] = tirx.Select(state[dim] != 0, _number(1), state[rank])
                        state[dim] = _number(1)
                        _write_range(made, dim, starts[index], ends[index], step, expression(size))

            if self.axes is not None:
                for index, axis in enumerate(self.axes):
                    one(index, _number(axis))
            else:
                with T.serial(0, count) as index:
                    one(index, index.astype("int64") if where is None else where[index].astype("int64"))
            with T.If(state[rank] != 0), T.Then():
                report(
                    f"Slice: the data ask for axes that a tensor of rank {rank} does not have, for one twice, "
                    "or for a step of 0",
                    needed,
                )

        results = [((3 * rank,), "int64"), ((rank + 1,), "int64")]
        ranges = ctx.expr(checking(ctx, write, given, results, "slice_ranges")[0])
        sizes = [
            data_dependent_size(ctx, _element(ctx, ranges, 3 * axis + 1), size, "slice", "error")
            if self.axes is None or axis in self.axes
            else size
            for axis, size in enumerate(shape)
        ]

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            source, ranges = tensors
            return source(*(ranges(3 * axis) + ctx * ranges(3 * axis + 2) for axis, ctx in enumerate(index)))

        return ctx.elements(sizes, element, x, ranges, name="slice_in_run")


def _write_range(made: Any, dim: int, start: Any, end: Any, step: Any, size: Any) -> None:
    """Write the first position of a slice, the number of positions and the step."""
    zero, far = _number(0), _number(_LONG)
    step = tirx.max(tirx.min(step, far), -far)
    first, last = (
        tirx.Select(position < 0, position + size, position)
        for position in (start.astype("int64"), end.astype("int64"))
    )
    is_back = step < 0
    first = tirx.max(tirx.min(first, tirx.Select(is_back, size - 1, size)), zero)
    low = tirx.Select(is_back, _number(-1), zero)
    last = tirx.max(tirx.min(last, size), low)
    stride = tirx.max(tirx.Select(is_back, -step, step), _number(1))
    distance = tirx.Select(is_back, first - last, last - first)
    made[3 * dim] = first
    made[3 * dim + 1] = tirx.min(tirx.max(tirx.floordiv(distance + stride - 1, stride), zero), size)
    made[3 * dim + 2] = step


@dataclass(frozen=True)
class PadInRun(Operator):
    """`numpy.pad` by amounts that a tensor holds; negative amounts crop first.

    Operands are the tensor, the amounts, integers `[2 × axes]`, those before all axes and then those after, and the
    constant, without axes. A run fails that crops more than there is, or in which nothing is left to repeat.

    Attributes:
        axes: which dimensions are padded.
        mode: see `PADDING_MODES`.
        known: sizes of the result that are known, or follow from others, by dimension.
    """

    axes: Shape
    mode: str
    known: tuple[tuple[int, Dimension], ...] = ()
    moves: ClassVar[bool] = True

    def shape(self, x: Shape, *_others: Any) -> Shape:
        """Return the shape of the tensor: the one of the result is data-dependent."""
        return x

    def lower(self, ctx: Emitter, x: Operand, amounts: Operand, fill: Operand) -> Operand:
        shape, count = shape_of(x), len(self.axes)

        def write(needed: list[Any], amounts: Any, made: Any, sizes: Any) -> None:
            """`made`: by axis how many positions are padded before it, the first that is kept and how many are; at
            last whether the amounts are wrong.
            """
            made[3 * count] = _number(0)
            for index, axis in enumerate(self.axes):
                before, after = (amounts[k].astype("int64") for k in (index, index + count))
                size, zero = expression(shape[axis]), _number(0)
                made[3 * index] = tirx.max(before, zero)
                made[3 * index + 1] = tirx.max(-before, zero)
                made[3 * index + 2] = size - made[3 * index + 1] - tirx.max(-after, zero)
                sizes[index] = size + before + after
                far = [tirx.any(amount < -_LONG, amount > _LONG) for amount in (before, after)]
                wrong = tirx.any(*far, sizes[index] < 0)
                if self.mode != "constant":
                    wrong = tirx.any(wrong, tirx.all(sizes[index] > 0, made[3 * index + 2] < 1))
                made[3 * count] = tirx.Select(wrong, _number(1), made[3 * count])
            with T.If(made[3 * count] != 0), T.Then():
                nothing = "" if self.mode == "constant" else f", or leave nothing for the mode '{self.mode}' to repeat"
                report(
                    f"Pad: the data ask for amounts that a tensor of the shape {list(shape)} does not have{nothing}",
                    needed,
                )
                for index in range(count):
                    sizes[index] = _number(0)

        results = [((3 * count + 1,), "int64"), ((count,), "int64")]
        ranges, target = checking(ctx, write, [amounts], results, "pad_ranges")
        known = dict(self.known)
        given = {index: known[axis] for index, axis in enumerate(self.axes) if axis in known}
        sizes = requested_sizes(ctx, ctx.expr(target), "pad", given)
        padded = dict(zip(self.axes, sizes, strict=True))

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            """Checks each position against the tensor, also where sizes are wrong, or of a branch not chosen."""
            source, ranges, fill = tensors
            where, inside = list(index), []
            for k, axis in enumerate(self.axes):
                before, first, kept = (ranges(3 * k + part) for part in range(3))
                position = index[axis] - before
                if self.mode == "constant":
                    inside += [position >= 0, position < kept]
                else:
                    position = periodic_source(position, kept, self.mode)
                where[axis] = first + position
                inside += [where[axis] >= 0, where[axis] < expression(shape[axis])]
            return tirx.if_then_else(tirx.all(*inside), source(*where), fill())

        return ctx.elements(
            [padded.get(axis, size) for axis, size in enumerate(shape)], element, x, ranges, fill, name="pad_in_run"
        )


def _number(value: int) -> Any:
    return tirx.const(value, "int64")

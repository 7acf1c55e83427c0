"""Sliding windows without filters: box, debox, pools, argmax_pool, sample, desample."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.frontends.channel_windows import mean_of_channels
from nnefc.frontends.nnef.declarations import Arguments, Dialect, Shape, ShapeError, Shapes, operation, shape_of
from nnefc.frontends.nnef.operations.borders import fold_border, pad_border
from nnefc.frontends.nnef.operations.broadcasting import spell_shape
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand, by_definition, check_table, shape_of_operand
from nnefc.frontends.nnef.operations.sliding import Window, downsized, make_window, upsized

__all__ = ["box"]

_WINDOW = (
    "size: integer[], border: string = 'constant', padding: (integer,integer)[] = [], "
    "stride: integer[] = [], dilation: integer[] = []"
)
_FORWARDED = "size = size, border = border, padding = padding, stride = stride, dilation = dilation"
_OUTPUT = "-> (output: tensor<scalar>)"

_MAX_POOL = {3: relax.op.nn.max_pool1d, 4: relax.op.nn.max_pool2d, 5: relax.op.nn.max_pool3d}
_AVG_POOL = {3: relax.op.nn.avg_pool1d, 4: relax.op.nn.avg_pool2d, 5: relax.op.nn.avg_pool3d}

_NOWHERE = 2**31 - 1
"""The position that loses to all others: larger than any window."""


def _input_shape(args: Arguments) -> Shape:
    shape = shape_of(args.input)
    if not shape:
        raise ShapeError("a window needs at least one dimension to slide along", "input")
    return shape


def _window(args: Arguments) -> Window:
    shape = _input_shape(args)
    if len(args.size) > len(shape):
        raise ShapeError(
            f"'size' has {len(args.size)} items, the input {spell_shape(shape)} {len(shape)} dimensions", "size"
        )
    size = [*args.size, *[1] * (len(shape) - len(args.size))]
    return make_window(args, size, shape, None)


def _pool_shape(args: Arguments) -> Shape:
    return downsized(_window(args), shape_of(args.input))


def _pool_with_index_shape(args: Arguments) -> Shapes:
    shape = _pool_shape(args)
    return {"output": shape, "index": shape}


def _sample_shape(args: Arguments) -> Shape:
    shape = _pool_shape(args)
    if shape_of(args.index) != shape:
        raise ShapeError(
            f"the index has the shape {spell_shape(shape_of(args.index))}, the window gives {spell_shape(shape)}",
            "index",
        )
    return shape


def _transposed(args: Arguments) -> tuple[Window, Shape]:
    """The window of a transposed operation and the shape of its result."""
    shape = _input_shape(args)
    fixed = tuple(args.output_shape) if "output_shape" in args else ()
    rank = len(shape)
    if len(args.size) > rank or len(args.stride) > rank:
        raise ShapeError(f"the window has more dimensions than the input {spell_shape(shape)}", "size")
    if fixed and (len(fixed) != rank or any(extent < 1 for extent in fixed)):
        raise ShapeError(f"'output_shape' {spell_shape(fixed)} needs {rank} positive extents", "output_shape")
    size = [*args.size, *[1] * (rank - len(args.size))]
    stride = [*args.stride, *[1] * (rank - len(args.stride))]
    target = fixed or tuple(extent * step for extent, step in zip(shape, stride, strict=True))
    window = make_window(args, size, target, shape)
    if not fixed:
        return window, upsized(window, shape) if args.padding else target
    if args.padding and downsized(window, fixed) != shape:
        raise ShapeError(
            f"'output_shape' {spell_shape(fixed)} with this padding belongs to an input of the shape "
            f"{spell_shape(downsized(window, fixed))}, the input is {spell_shape(shape)}",
            "output_shape",
        )
    return window, target


def _transposed_shape(args: Arguments) -> Shape:
    return _transposed(args)[1]


def _desample_shape(args: Arguments) -> Shape:
    if shape_of(args.index) != shape_of(args.input):
        raise ShapeError(
            f"the shapes of the index {spell_shape(shape_of(args.index))} "
            f"and the input {spell_shape(shape_of(args.input))} must be equal",
            "index",
        )
    return _transposed_shape(args)


def _spatial(window: Window, rank: int) -> dict[str, Any] | None:
    """The window as attributes of Relax's pools, or None if it is not of their kind."""
    axes = zip(window.size[:2], window.stride[:2], window.padding[:2], strict=True)
    if rank not in _MAX_POOL or any(axis != (1, 1, (0, 0)) for axis in axes):
        return None
    if any(amount < 0 for pair in window.padding for amount in pair):
        return None
    # Windows that lie in the padding altogether are beyond what Relax's pools define.
    if any(
        amount >= reach for pair, reach in zip(window.padding, window.reach, strict=True) for amount in pair if amount
    ):
        return None
    padding = window.padding[2:]
    return {
        "pool_size": window.size[2:],
        "strides": window.stride[2:],
        "dilation": window.dilation[2:],
        "padding": [before for before, _ in padding] + [after for _, after in padding],
    }


def _unpadded(window: Window) -> Window:
    return Window(window.size, window.stride, window.dilation, ((0, 0),) * len(window.size), "constant")


def _slide(
    window: Window, shape: Sequence[int], offsets: Sequence[tirx.Expr], index: Sequence[tirx.Var]
) -> tuple[list[tirx.Expr], list[tirx.Expr]]:
    """The positions that a window reads, and the conditions under which they are inside (only where they can fail)."""
    places, inside = [], []
    axes = zip(index, window.stride, offsets, window.dilation, window.padding, shape, window.reach, strict=True)
    for i, stride, offset, dilation, (before, after), extent, reach in axes:
        place = i * stride + offset * dilation - before
        places.append(place)
        if before > 0:
            inside.append(place >= 0)
        if after > 0 or before < 0 or reach > extent:
            inside.append(place < extent)
    return places, inside


def _offsets(window: Window) -> list[Any]:
    return [te.reduce_axis((0, size), f"offset{axis}") for axis, size in enumerate(window.size)]


def _reduce_te(window: Window, reducer: Callable[..., tirx.Expr], outside: Callable[[str], tirx.Expr], name: str):  # type: ignore[no-untyped-def]
    def reduce(x: te.Tensor) -> te.Tensor:
        shape = [int(extent) for extent in x.shape]
        offsets = _offsets(window)

        def item(*index: tirx.Var) -> tirx.Expr:
            places, inside = _slide(window, shape, offsets, index)
            value = x(*places)
            return reducer(
                tirx.if_then_else(tirx.all(*inside), value, outside(x.dtype)) if inside else value, axis=offsets
            )

        return te.compute(downsized(window, tuple(shape)), item, name=name)

    return reduce


def _counts(window: Window, shape: Shape) -> np.ndarray:
    """How many positions of every window are inside, float32, 1 along axes where all windows have equally many."""
    counts = np.ones((1,) * len(shape), np.float32)
    axes = zip(
        window.size, window.stride, window.dilation, window.padding, shape, downsized(window, shape), strict=True
    )
    for axis, (size, stride, dilation, (before, _), extent, out) in enumerate(axes):
        check_table(out * size)
        places = np.arange(out)[:, None] * stride + np.arange(size) * dilation - before
        along = ((places >= 0) & (places < extent)).sum(1)
        if (along == along[0]).all():
            along = along[:1]
        counts = counts * along.reshape([-1 if other == axis else 1 for other in range(len(shape))]).astype(np.float32)
    return counts


def box(lowering: Lowering, x: Operand, window: Window, normalize: bool) -> relax.Expr:
    """The sums over windows, or with `normalize` the means, unbound."""
    shape = shape_of_operand(x)
    if window.border not in ("constant", "ignore"):
        x = pad_border(lowering, x, window.padding, window.border)
        window = _unpadded(window)
    attributes = _spatial(window, len(shape))
    if normalize and attributes is not None:
        inclusive = window.border == "constant"
        return _AVG_POOL[len(shape)](lowering.expr(x), count_include_pad=inclusive, **attributes)
    if normalize and window.border == "constant" and _is_of_channels(window):
        return mean_of_channels(lowering.builder, lowering.expr(x), *window.padding[1])
    divisor: np.ndarray | None = None
    if normalize:
        shape = shape_of_operand(x)
        whole = np.array(math.prod(window.size), np.float32)
        # A window that lies outside altogether has nothing to average: its result is 0.
        divisor = whole if window.border == "constant" else np.maximum(_counts(window, shape), 1)
    if all(size == 1 for size in window.size) and not window.pads:
        sums = _strided(lowering, x, window.stride)
        return sums
    sums = lowering.compute(_reduce_te(window, te.sum, lambda dtype: tirx.const(0, dtype), "box"), x, name="box")
    return sums if divisor is None else relax.op.divide(lowering.emit(sums, "sum"), lowering.expr(divisor))


def _is_of_channels(window: Window) -> bool:
    """Whether the window has several channels of one position, and there is one for each channel."""
    others = [
        part
        for axis, part in enumerate(zip(window.size, window.stride, window.dilation, window.padding, strict=True))
        if axis != 1
    ]
    if len(others) == len(window.size) or any(part != (1, 1, 1, (0, 0)) for part in others):
        return False
    size, (before, after) = window.size[1], window.padding[1]
    return window.stride[1] == window.dilation[1] == 1 and min(before, after) >= 0 and before + after + 1 == size


def _strided(lowering: Lowering, x: Operand, stride: Shape) -> relax.Expr:
    """Every `stride`-th item: a window of one position."""
    axes = [axis for axis, step in enumerate(stride) if step != 1]
    if not axes:
        return lowering.expr(x)
    shape = shape_of_operand(x)
    return relax.op.strided_slice(
        lowering.expr(x), axes, [0] * len(axes), [shape[axis] for axis in axes], [stride[axis] for axis in axes]
    )


@operation(
    f"fragment box(input: tensor<scalar>, {_WINDOW}, normalize: logical = false) {_OUTPUT}",
    shape=_pool_shape,
    target="R.nn.avg_pool1d, avg_pool2d, avg_pool3d if normalized over spatial windows, else TE",
)
def _box(lowering: Lowering, args: Arguments) -> Operand:
    return box(lowering, lowering.operand(args.input), _window(args), args.normalize)


@operation(
    f"fragment avg_pool(input: tensor<scalar>, {_WINDOW}) {_OUTPUT}",
    shape=_pool_shape,
    definition=f"output = box(input, {_FORWARDED}, normalize = true);",
    target="R.nn.avg_pool1d, avg_pool2d, avg_pool3d over spatial windows, else TE",
)
def _avg_pool(lowering: Lowering, args: Arguments) -> Operand:
    return box(lowering, lowering.operand(args.input), _window(args), normalize=True)


operation(
    f"fragment rms_pool(input: tensor<scalar>, {_WINDOW}) {_OUTPUT}",
    shape=_pool_shape,
    definition=f"output = sqrt(avg_pool(sqr(input), {_FORWARDED}));",
)(by_definition)


def _max_pool(lowering: Lowering, x: Operand, window: Window) -> relax.Expr:
    if window.border != "ignore":
        x = pad_border(lowering, x, window.padding, window.border)
        window = _unpadded(window)
    rank = len(shape_of_operand(x))
    attributes = _spatial(window, rank)
    if attributes is not None:
        return _MAX_POOL[rank](lowering.expr(x), **attributes)
    return lowering.compute(_reduce_te(window, te.max, te.min_value, "max_pool"), x, name="max_pool")


@operation(
    f"fragment max_pool(input: tensor<scalar>, {_WINDOW}) {_OUTPUT}",
    shape=_pool_shape,
    definition=f"output, index = max_pool_with_index(input, {_FORWARDED});",
    target="R.nn.max_pool1d, max_pool2d, max_pool3d over spatial windows, else TE",
)
def _lower_max_pool(lowering: Lowering, args: Arguments) -> Operand:
    return _max_pool(lowering, lowering.operand(args.input), _window(args))


def _argmax_pool(lowering: Lowering, x: Operand, window: Window) -> relax.Expr:
    if window.border != "ignore":
        x = pad_border(lowering, x, window.padding, window.border)
        window = _unpadded(window)
    return lowering.compute(_argmax_te(window), x, name="argmax_pool")


def _argmax_te(window: Window):  # type: ignore[no-untyped-def]
    """The position of the largest item inside every window, row-major, int32; of equal ones the first."""

    def better(a: Any, b: Any) -> Any:
        take = tirx.any(a[1] > b[1], tirx.all(a[1] == b[1], a[0] <= b[0]))
        return tirx.Select(take, a[0], b[0]), tirx.Select(take, a[1], b[1])

    # The identity loses to every item, also to the lowest one, because its position is the last.
    largest = te.comm_reducer(better, lambda i, v: (tirx.const(_NOWHERE, i), te.min_value(v)), name="argmax")

    def argmax(x: te.Tensor) -> te.Tensor:
        shape = [int(extent) for extent in x.shape]
        offsets = _offsets(window)

        def item(*index: tirx.Var) -> Any:
            places, inside = _slide(window, shape, offsets, index)
            position: Any = tirx.const(0, "int32")
            for size, offset in zip(window.size, offsets, strict=True):
                position = position * size + offset.var.astype("int32")
            value = x(*places)
            if inside:
                within = tirx.all(*inside)
                value = tirx.if_then_else(within, value, te.min_value(x.dtype))
                position = tirx.if_then_else(within, position, tirx.const(_NOWHERE, "int32"))
            return largest((position, value), axis=offsets)

        both = te.compute(downsized(window, tuple(shape)), item, name="argmax_pool")

        def found(*index: tirx.Var) -> tirx.Expr:
            # A window that lies outside altogether has no largest item: its first position stands for it.
            return tirx.Select(both[0](*index) < _NOWHERE, both[0](*index), tirx.const(0, "int32"))

        return te.compute(both[0].shape, found, name="argmax_pool_index")

    return argmax


@operation(
    f"fragment argmax_pool(input: tensor<scalar>, {_WINDOW}) -> (index: tensor<integer>)",
    shape=_pool_shape,
    target="TE",
    limits="of equal items the first",
)
def _lower_argmax_pool(lowering: Lowering, args: Arguments) -> Operand:
    return _argmax_pool(lowering, lowering.operand(args.input), _window(args))


@operation(
    f"fragment max_pool_with_index(input: tensor<scalar>, {_WINDOW}) "
    "-> (output: tensor<scalar>, index: tensor<integer>)",
    shape=_pool_with_index_shape,
    definition=f"""
        index = argmax_pool(input, {_FORWARDED});
        output = sample(input, index, {_FORWARDED});
    """,
    target="as max_pool and argmax_pool",
)
def _max_pool_with_index(lowering: Lowering, args: Arguments) -> tuple[Operand, Operand]:
    x, window = lowering.operand(args.input), _window(args)
    return _max_pool(lowering, x, window), _argmax_pool(lowering, x, window)


def _unravel(position: tirx.Expr, size: Shape) -> list[tirx.Expr]:
    """The offsets along every axis of a row-major position in a window."""
    offsets: list[tirx.Expr] = []
    for extent in reversed(size):
        offsets.insert(0, tirx.floormod(position, extent))
        position = tirx.floordiv(position, extent)
    return offsets


@operation(
    f"fragment sample(input: tensor<scalar>, index: tensor<integer>, {_WINDOW}) {_OUTPUT}",
    shape=_sample_shape,
    target="TE",
    limits="positions outside the tensor read 0",
)
def _sample(lowering: Lowering, args: Arguments) -> Operand:
    """Positions come from the data: whatever they are, nothing outside the tensor is read; there it reads zero."""
    x, window = lowering.operand(args.input), _window(args)
    if window.border not in ("constant", "ignore"):
        x = pad_border(lowering, x, window.padding, window.border)
        window = _unpadded(window)

    def sample(x: te.Tensor, index: te.Tensor) -> te.Tensor:
        def item(*at: tirx.Var) -> tirx.Expr:
            offsets = _unravel(index(*at), window.size)
            axes = zip(at, window.stride, offsets, window.dilation, window.padding, strict=True)
            places = [i * stride + offset * dilation - pair[0] for i, stride, offset, dilation, pair in axes]
            inside = [tirx.all(place >= 0, place < extent) for place, extent in zip(places, x.shape, strict=True)]
            return tirx.if_then_else(tirx.all(*inside), x(*places), tirx.const(0, x.dtype))

        return te.compute(index.shape, item, name="sample")

    return lowering.compute(sample, x, lowering.operand(args.index), name="sample")


def _spread_te(window: Window, shape: Shape, chosen: bool):  # type: ignore[no-untyped-def]
    """Gather at every position of `shape` what the windows write there; with `chosen`, only at their index.

    The second operand of the computation is the index then.
    """

    def spread(x: te.Tensor, *index: te.Tensor) -> te.Tensor:
        offsets = _offsets(window)

        def item(*at: tirx.Var) -> tirx.Expr:
            places, hits = [], []
            axes = zip(at, offsets, window.stride, window.dilation, window.padding, x.shape, strict=True)
            for i, offset, stride, dilation, (before, _), extent in axes:
                start = i + before - offset * dilation
                places.append(tirx.floordiv(start, stride))
                hits.append(tirx.all(start >= 0, tirx.floormod(start, stride) == 0, places[-1] < extent))
            zero = tirx.const(0, x.dtype)
            value = x(*places)
            if chosen:
                position: Any = tirx.const(0, "int32")
                for size, offset in zip(window.size, offsets, strict=True):
                    position = position * size + offset.var.astype("int32")
                here = index[0](*places)
                value = tirx.if_then_else(here == position.astype(index[0].dtype), value, zero)
            return te.sum(tirx.if_then_else(tirx.all(*hits), value, zero), axis=offsets)

        return te.compute(shape, item, name="desample" if chosen else "debox")

    return spread


def _spread(lowering: Lowering, window: Window, shape: Shape, operands: Sequence[Operand], name: str) -> Operand:
    """What the windows write, with the border's positions added to those inside that they stand for."""
    chosen = len(operands) == 2
    if window.border in ("constant", "ignore") or not window.pads:
        return lowering.compute(_spread_te(window, shape, chosen), *operands, name=name)
    padded = tuple(extent + before + after for extent, (before, after) in zip(shape, window.padding, strict=True))
    whole = lowering.emit(
        lowering.compute(_spread_te(_unpadded(window), padded, chosen), *operands, name=name), "whole"
    )
    return fold_border(lowering, whole, window.padding, window.border)


@operation(
    f"fragment debox(input: tensor<scalar>, {_WINDOW}, output_shape: integer[] = [], normalize: logical = false) "
    f"{_OUTPUT}",
    shape=_transposed_shape,
    dialects={Dialect.FINAL},
    target="TE",
    limits="normalized, each item is shared among the positions of its window",
)
@operation(
    f"fragment debox(input: tensor<scalar>, {_WINDOW}, normalize: logical = false) {_OUTPUT}",
    shape=_transposed_shape,
    dialects={Dialect.PROVISIONAL},
    target="TE",
    limits="normalized, each item is shared among the positions of its window",
)
def _debox(lowering: Lowering, args: Arguments) -> Operand:
    """The transpose of box: every item is added to all positions of its window; normalized, in equal shares."""
    x = lowering.operand(args.input)
    window, shape = _transposed(args)
    if args.normalize:
        whole = np.array(math.prod(window.size), np.float32)
        # A window that lies outside altogether has no positions to share among: its item goes nowhere.
        shares = (
            np.maximum(_window_counts(window, shape, shape_of_operand(x)), 1) if window.border == "ignore" else whole
        )
        x = lowering.emit(relax.op.divide(lowering.expr(x), lowering.expr(shares)), "shares")
    return _spread(lowering, window, shape, [x], "debox")


def _window_counts(window: Window, shape: Shape, windows: Shape) -> np.ndarray:
    """As `_counts`, for a given number of windows along every axis."""
    padding = tuple(
        (before, (out - 1) * stride + reach - before - extent)
        for (before, _), out, stride, reach, extent in zip(
            window.padding, windows, window.stride, window.reach, shape, strict=True
        )
    )
    return _counts(Window(window.size, window.stride, window.dilation, padding, window.border), shape)


@operation(
    f"fragment desample(input: tensor<scalar>, index: tensor<integer>, {_WINDOW}, output_shape: integer[] = []) "
    f"{_OUTPUT}",
    shape=_desample_shape,
    dialects={Dialect.FINAL},
    target="TE",
)
@operation(
    f"fragment desample(input: tensor<scalar>, index: tensor<integer>, {_WINDOW}) {_OUTPUT}",
    shape=_desample_shape,
    dialects={Dialect.PROVISIONAL},
    target="TE",
)
def _desample(lowering: Lowering, args: Arguments) -> Operand:
    window, shape = _transposed(args)
    return _spread(lowering, window, shape, lowering.operands((args.input, args.index)), "desample")

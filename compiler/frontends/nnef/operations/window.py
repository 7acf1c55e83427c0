"""Sliding windows without filters: box, debox, pools, argmax_pool, sample, desample."""

from __future__ import annotations

from collections.abc import Sequence

from nnefc.frontends.nnef.declarations import Arguments, Dialect, Shape, ShapeError, Shapes, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import spell_shape
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand, by_definition
from nnefc.frontends.nnef.operations.sliding import BORDERS, downsized, make_window, upsized
from nnefc.operators.nn.pooling import ArgMaxPool, AveragePool, MaxPool, SumPool
from nnefc.operators.nn.unpooling import SampleWindows, SpreadWindows
from nnefc.operators.nn.window import Window
from nnefc.operators.tensor.padding import Pad

__all__ = ["box", "pooled_window"]

_WINDOW = (
    "size: integer[], border: string = 'constant', padding: (integer,integer)[] = [], "
    "stride: integer[] = [], dilation: integer[] = []"
)
_FORWARDED = "size = size, border = border, padding = padding, stride = stride, dilation = dilation"
_OUTPUT = "-> (output: tensor<scalar>)"


def _input_shape(args: Arguments) -> Shape:
    shape = shape_of(args.input)
    if not shape:
        raise ShapeError("a window needs at least one dimension to slide along", "input")
    return shape


def _window(args: Arguments) -> Window:
    shape = _input_shape(args)
    if len(args.size) > len(shape):
        raise ShapeError(
            f"'size' has {len(args.size)} elements, the input {spell_shape(shape)} {len(shape)} dimensions", "size"
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
    if fixed and (len(fixed) != rank or any(length < 1 for length in fixed)):
        raise ShapeError(f"'output_shape' {spell_shape(fixed)} needs {rank} positive sizes", "output_shape")
    size = [*args.size, *[1] * (rank - len(args.size))]
    stride = [*args.stride, *[1] * (rank - len(args.stride))]
    target = fixed or tuple(length * step for length, step in zip(shape, stride, strict=True))
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


def pooled_window(args: Arguments) -> Window:
    """The window of a pooling's arguments, over the spatial dimensions alone where it has but those."""
    return _over(_window(args))


def _over(window: Window) -> Window:
    """The window over the spatial dimensions alone, where it does nothing to batch and channels."""
    parts = zip(window.size, window.stride, window.padding, strict=True)
    if window.rank < 3 or any(part != (1, 1, (0, 0)) for part in list(parts)[:2]):
        return window
    return Window(window.size[2:], window.stride[2:], window.dilation[2:], window.padding[2:])


def _bordered(
    lowering: Lowering, x: Operand, window: Window, border: str, native: Sequence[str]
) -> tuple[Operand, Window]:
    """The input and the window, with the padding done before unless the border is one that the pooling has itself."""
    if border in native or not window.pads:
        return x, window
    return lowering.bound(Pad(window.padding, BORDERS[border]).lower(lowering, x)), window.unpadded()


_SUMS = ("constant", "ignore")


def box(lowering: Lowering, args: Arguments, window: Window, normalize: bool) -> Operand:
    """The sums over windows, or with `normalize` the means, unbound."""
    x, window = _bordered(lowering, lowering.operand(args.input), window, args.get("border", "constant"), _SUMS)
    if normalize:
        count_padding = args.get("border", "constant") != "ignore"
        return AveragePool(_over(window), count_padding=count_padding).lower(lowering, x)
    return SumPool(window).lower(lowering, x)


@operation(
    f"fragment box(input: tensor<scalar>, {_WINDOW}, normalize: logical = false) {_OUTPUT}",
    shape=_pool_shape,
    target="R.nn.avg_pool1d, avg_pool2d, avg_pool3d if normalized over spatial windows, else TE",
)
def _box(lowering: Lowering, args: Arguments) -> Operand:
    return box(lowering, args, _window(args), args.normalize)


@operation(
    f"fragment avg_pool(input: tensor<scalar>, {_WINDOW}) {_OUTPUT}",
    shape=_pool_shape,
    definition=f"output = box(input, {_FORWARDED}, normalize = true);",
    target="R.nn.avg_pool1d, avg_pool2d, avg_pool3d over spatial windows, else TE",
)
def _avg_pool(lowering: Lowering, args: Arguments) -> Operand:
    return box(lowering, args, _window(args), normalize=True)


operation(
    f"fragment rms_pool(input: tensor<scalar>, {_WINDOW}) {_OUTPUT}",
    shape=_pool_shape,
    definition=f"output = sqrt(avg_pool(sqr(input), {_FORWARDED}));",
)(by_definition)


@operation(
    f"fragment max_pool(input: tensor<scalar>, {_WINDOW}) {_OUTPUT}",
    shape=_pool_shape,
    definition=f"output, index = max_pool_with_index(input, {_FORWARDED});",
    target="R.nn.max_pool1d, max_pool2d, max_pool3d over spatial windows, else TE",
)
def _lower_max_pool(lowering: Lowering, args: Arguments) -> Operand:
    x, window = _bordered(lowering, lowering.operand(args.input), _window(args), args.border, ("ignore",))
    return MaxPool(_over(window)).lower(lowering, x)


@operation(
    f"fragment argmax_pool(input: tensor<scalar>, {_WINDOW}) -> (index: tensor<integer>)",
    shape=_pool_shape,
    target="TE",
    limits="of equal elements the first",
)
def _lower_argmax_pool(lowering: Lowering, args: Arguments) -> Operand:
    x, window = _bordered(lowering, lowering.operand(args.input), _window(args), args.border, ("ignore",))
    return ArgMaxPool(_over(window), within="window").lower(lowering, x)


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
    return _lower_max_pool(lowering, args), _lower_argmax_pool(lowering, args)


@operation(
    f"fragment sample(input: tensor<scalar>, index: tensor<integer>, {_WINDOW}) {_OUTPUT}",
    shape=_sample_shape,
    target="TE",
    limits="positions outside the tensor read 0",
)
def _sample(lowering: Lowering, args: Arguments) -> Operand:
    operands = lowering.operands((args.input, args.index))
    return SampleWindows(_window(args), BORDERS[args.border]).lower(lowering, *operands)


@operation(
    f"fragment debox(input: tensor<scalar>, {_WINDOW}, output_shape: integer[] = [], normalize: logical = false) "
    f"{_OUTPUT}",
    shape=_transposed_shape,
    dialects={Dialect.FINAL},
    target="TE",
    limits="normalized, each element is shared among the positions of its window",
)
@operation(
    f"fragment debox(input: tensor<scalar>, {_WINDOW}, normalize: logical = false) {_OUTPUT}",
    shape=_transposed_shape,
    dialects={Dialect.PROVISIONAL},
    target="TE",
    limits="normalized, each element is shared among the positions of its window",
)
def _debox(lowering: Lowering, args: Arguments) -> Operand:
    """The transpose of box: every element is added to all positions of its window; normalized, in equal shares."""
    window, shape = _transposed(args)
    shares = ("inside" if args.border == "ignore" else "all") if args.normalize else None
    return SpreadWindows(window, shape, BORDERS[args.border], shares).lower(lowering, lowering.operand(args.input))


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
    operands = lowering.operands((args.input, args.index))
    return SpreadWindows(window, shape, BORDERS[args.border]).lower(lowering, *operands)

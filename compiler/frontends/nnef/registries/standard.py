"""Standard operations that tract's dialect redefines under the same names."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.nnef.declarations import STANDARD
from nnefc.frontends.nnef.dynamic.calls import as_tensors, call_standard
from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.dynamic.values import Value
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.frontends.nnef.operations.window import pooled_window
from nnefc.frontends.nnef.registries.axes import axes_of, axis_of
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, dtype_of, is_empty, numpy_dtype, rank_of, shape_of
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.math.reduction import ArgMinMax
from nnefc.operators.nn.activation import Softmax
from nnefc.operators.nn.pooling import ArgMaxPool
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.shape import Reshape, Slice, Tile, Transpose
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, bounds, ceil_div, greatest, is_known, minimum

__all__ = ["as_standard"]

_STANDARD = registry("standard")


@_STANDARD.operator(
    "fragment linear(input: tensor<scalar>, filter: tensor<scalar>, bias: tensor<scalar> = 0.0) -> (y: tensor<scalar>)"
)
def _linear(context: ExtensionContext, args: Arguments) -> Operand:
    """`input · filterᵀ + bias`, of any rank."""
    emitter = context.emitter
    made = emitter.apply(MatMul(transpose_b=True), args.input, args.filter)
    return apply(emitter, "add", made, args.bias)


@_STANDARD.operator(
    "fragment reshape<?>(input: tensor<?>, shape: integer[], axis_start: integer = 0, axis_count: integer = -1) "
    "-> (output: tensor<?>)",
    promotes=False,
)
def _reshape(context: ExtensionContext, args: Arguments) -> Operand:
    """A 0 keeps the size, -1 stands for what is left."""
    emitter, x, start = context.emitter, shape_of(args.input), args.axis_start
    end = len(x) if args.axis_count == -1 else start + args.axis_count
    if not 0 <= start <= end <= len(x):
        raise CompileError(f"the dimensions from {start} on, {args.axis_count} of them, are not in {list(x)}")
    wanted = [x[start + i] if size == 0 else size for i, size in enumerate(args.shape)]
    return emitter.apply(Reshape((*x[:start], *wanted, *x[end:])), args.input)


@_STANDARD.operator("fragment tile<?>(input: tensor<?>, repeats: integer[]) -> (output: tensor<?>)", promotes=False)
def _tile(context: ExtensionContext, args: Arguments) -> Operand:
    """A tensor may be there no time at all."""
    return context.emitter.apply(Tile(tuple(args.repeats)), args.input)


@_STANDARD.operator("fragment softmax(x: tensor<scalar>, axes: integer[] = [1]) -> (y: tensor<scalar>)")
def _softmax(context: ExtensionContext, args: Arguments) -> Operand:
    """Negative axes count from the end."""
    return context.emitter.apply(Softmax(axes_of(args.axes, args.x)), args.x)


@_STANDARD.operator(
    "fragment slice<?>(input: tensor<?>, axes: integer[], begin: integer[], end: integer[], stride: integer[] = []) "
    "-> (output: tensor<?>)",
    promotes=False,
)
def _slice(context: ExtensionContext, args: Arguments) -> Operand:
    """Emit a slice. Ends are clamped; negative positions count from the end, and so does an end of 0, unless it is
    the beginning, too: then there are no elements.
    """
    shape, strides = shape_of(args.input), args.stride or [1] * len(args.axes)
    if not len(args.axes) == len(args.begin) == len(args.end) == len(strides):
        raise CompileError(f"{len(args.axes)} axes do not fit the numbers of bounds and strides")
    ranges = {}
    for written, begin, end, stride in zip(args.axes, args.begin, args.end, strides, strict=True):
        axis = axis_of(written, len(shape))
        if stride == 0:
            raise CompileError(f"there is no slice by {stride} along the axis {axis} of {list(shape)}")
        size = shape[axis]
        if stride < 0:
            first = minimum(_from_front(begin, size), size - 1)
            last = -1 if end == 0 and begin != 0 else _from_front(end, size)
            count = ceil_div(first - last, -stride)
        else:
            first = minimum(_from_front(begin, size), size)
            last = size if end == 0 and begin != 0 else minimum(_from_front(end, size), size)
            count = ceil_div(greatest(last - first, 0), stride)
        ranges[axis] = (first, count, stride)
    made = Slice(ranges).shape(shape)
    if is_empty(made) and not is_known(*made):  # of what has no elements, other sizes do not matter
        sizes = [size if isinstance(size, int) else 1 for size in made]
        return np.zeros(sizes, numpy_dtype(dtype_of(args.input)))
    return context.emitter.apply(Slice(ranges), args.input)


@_STANDARD.operator("fragment concat<?>(values: tensor<?>[], axis: integer) -> (value: tensor<?>)")
def _concat(context: ExtensionContext, args: Arguments) -> Operand:
    """Emit a concatenation without the tensors that have no elements."""
    values = [value for value in args["values"] if not is_empty(shape_of(value))] or args["values"][:1]
    return context.emitter.apply(Concat(axis_of(args.axis, rank_of(values[0]))), *values)


def _from_front(position: Dimension, size: Dimension) -> Dimension:
    """A position, from the front."""
    if bounds(position)[1] < 0:
        return greatest(size + position, 0)
    if bounds(position)[0] < 0:
        raise CompileError(f"the position {position} counts from the end for some sizes only")
    return position


def as_standard(context: ExtensionContext, name: str, args: Arguments, **changed: Value) -> Value:
    """A call of the standard's operation of that name, with some arguments changed."""
    operation = STANDARD.lookup(name, Dialect.FINAL)
    assert operation is not None
    return call_standard(context.emitter, operation, {**args, **changed})


_DECONV = (
    "fragment deconv(input: tensor<scalar>, filter: tensor<scalar>, bias: tensor<scalar> = 0.0, "
    "border: string = 'constant', padding: (integer, integer)[] = [], stride: integer[] = [], "
    "dilation: integer[] = [], output_shape: integer[] = [], groups: integer = 1) -> (output: tensor<scalar>)"
)


@_STANDARD.operator(_DECONV)
def _deconv(context: ExtensionContext, args: Arguments) -> Value:
    """The filter is `[outputs, inputs / groups, …]`, the standard's `[inputs, outputs / groups, …]`."""
    emitter, shape, groups = context.emitter, shape_of(args.filter), max(1, args.groups)
    outputs, inputs, *taps = shape
    if outputs % groups:
        raise CompileError(f"the filter {list(shape)} does not fit {groups} groups")
    apart = emitter.apply(Reshape((groups, outputs // groups, inputs, *taps)), args.filter)
    permuted = emitter.apply(Transpose((0, 2, 1, *range(3, len(taps) + 3))), apart)
    filters = emitter.apply(Reshape((groups * inputs, outputs // groups, *taps)), permuted)
    return as_standard(context, "deconv", args, filter=filters)


_POOL = (
    "(input: tensor<scalar>, size: integer[], border: string = 'constant', padding: (integer, integer)[] = [], "
    "stride: integer[] = [], dilation: integer[] = []) -> "
)


@_STANDARD.operator(f"fragment max_pool{_POOL}(output: tensor<scalar>)")
def _max_pool(context: ExtensionContext, args: Arguments) -> Value:
    """Emit a pooling that ignores positions outside, whatever the border is."""
    return as_standard(context, "max_pool", args, border="ignore")


@_STANDARD.operator(f"fragment max_pool_with_index{_POOL}(output: tensor<scalar>, index: tensor<integer>)")
def _max_pool_with_index(context: ExtensionContext, args: Arguments) -> Value:
    """Positions are numbered in the channel, not in the window, and have 64 bits."""
    largest = as_standard(context, "max_pool", args, border="ignore")
    window = pooled_window(Arguments({**args, "input": as_tensors(context.emitter, args.input)}))
    return [largest, context.emitter.apply(ArgMaxPool(window, within="channel"), args.input)]


for _name, _largest in (("argmax_reduce", True), ("argmin_reduce", False)):

    @_STANDARD.operator(f"fragment {_name}(input: tensor<scalar>, axes: integer[]) -> (output: tensor<integer>)")
    def _arg_min_max(context: ExtensionContext, args: Arguments, largest: bool = _largest) -> Operand:
        """Integers have 64 bits."""
        axes, rank = tuple(sorted(args.axes)), rank_of(args.input)
        if len(set(axes)) < len(axes) or any(not 0 <= axis < rank for axis in axes):
            raise CompileError(f"the axes {args.axes} must name different dimensions among {rank}")
        return context.emitter.apply(ArgMinMax(axes, keepdims=True, largest=largest, dtype="int64"), args.input)


@_STANDARD.operator(
    "fragment pad(input: tensor<scalar>, padding: (integer, integer)[], border: string = 'constant', "
    "value: scalar = 0.0) -> (output: tensor<scalar>)",
    promotes=False,
)
def _pad(context: ExtensionContext, args: Arguments) -> Value:
    """The border that repeats the last element is called `replicated`, too."""
    border = {"replicated": "replicate"}.get(args.border, args.border)
    made = as_standard(context, "pad", args, border=border)
    imaginary = [(0, 0)] * (rank_of(args.input) - 1) + [(0, 1)]
    if border == "constant" and args.value == 0 and shape_of(args.input)[-1:] == (1,) and args.padding == imaginary:
        context.emitter.real_parts[made] = args.input
    return made


def _functions() -> None:
    """Functions that tract has by other names."""
    for name, function in (("square", "square"), ("recip", "reciprocal")):

        def lower(context: ExtensionContext, args: Arguments, function: str = function) -> Operand:
            return apply(context.emitter, function, args.x)

        _STANDARD.operator(f"fragment {name}(x: tensor<scalar>) -> (y: tensor<scalar>)")(lower)


_functions()

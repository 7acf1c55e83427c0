"""`tract_pulse`: streaming networks that process a stream pulse by pulse and keep their context in states.

A run takes the next piece, a *pulse*. Operators that look back keep the end of what came before; those that treat the
begin and the end of a stream in another way count the elements that have come.
"""

from __future__ import annotations

import numpy as np

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.registries.axes import axis_of
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, dtype_of, numpy_dtype, rank_of, shape_of
from nnefc.operators.math.elementwise import Where, apply
from nnefc.operators.math.reduction import Cumulative
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.creation import Arange
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.shape import Slice
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, is_known

__all__: list[str] = []

_PULSE = registry("tract_pulse")


@_PULSE.operator(
    "fragment tract_pulse_delay(input: tensor<scalar>, axis: integer, delay: integer, overlap: integer) "
    "-> (output: tensor<scalar>)",
    promotes=False,
)
def _delay(context: ExtensionContext, args: Arguments) -> Operand:
    """Concatenates the kept elements and the input; the last `delay + overlap` elements are kept, zeros at first."""
    emitter, x = context.emitter, args.input
    shape, kept = list(shape_of(x)), args.delay + args.overlap
    if kept == 0:
        return x
    axis = axis_of(args.axis, rank_of(x))
    size = shape[axis]
    own = [*shape[:axis], kept, *shape[axis + 1 :]]
    if not is_known(*own):
        raise CompileError(f"a delay needs known sizes but for that of its axis, the input is {shape}")
    before = emitter.state(f"{emitter.hint}_delayed", np.zeros(own, numpy_dtype(dtype_of(x))))
    whole = emitter.apply(Concat(axis), before, x)
    emitter.update(before, emitter.apply(Slice({axis: (size, kept, 1)}), whole))
    return emitter.apply(Slice({axis: (0, size + args.overlap, 1)}), whole)


@_PULSE.operator(
    "fragment tract_pulse_pulse_pad(input: tensor<scalar>, axis: integer, before: integer, begin_input: integer, "
    "overlap: integer = 0, after: integer = 0, end_input: integer, border: string = 'constant', value: scalar = 0.0) "
    "-> (output: tensor<scalar>)",
    promotes=False,
    limits="borders `constant` and `replicated`",
)
def _pulse_pad(context: ExtensionContext, args: Arguments) -> Operand:
    """Replaces elements of the stream before `begin_input` and from `end_input` on by padding.

    Args:
        args: a run goes on `overlap` elements before the end of the last one; a stream whose end no input tells has
            none.
    """
    emitter, x, axis = context.emitter, args.input, axis_of(args.axis, rank_of(args.input))
    size = shape_of(x)[axis]
    position = _position(context, size - args.overlap)
    if args.border == "constant":
        return _outside(context, x, axis, position, args.begin_input, args.end_input, emitter.number(args.value, x))
    if args.border != "replicated":
        raise CompileError(f"a stream cannot be padded with the border '{args.border}'")
    begin = apply(emitter, "subtract", emitter.tensor(args.begin_input, "int64"), position)
    made = _outside(context, x, axis, position, args.begin_input, None, _element(context, x, axis, begin))
    if context.is_endless(args.end_input):
        return made
    end = emitter.tensor(args.end_input, "int64")
    last = _element(context, x, axis, apply(emitter, "subtract", emitter.tensor(args.end_input - 1, "int64"), position))
    kept = emitter.state(f"{emitter.hint}_last", np.zeros(shape_of(last), numpy_dtype(dtype_of(x))))
    last = emitter.apply(Where(), apply(emitter, "less", position, end), last, kept)
    emitter.update(kept, last)
    return _outside(context, made, axis, position, 0, args.end_input, last)


@_PULSE.operator(
    "fragment tract_pulse_mask(input: tensor<scalar>, axis: integer, begin: integer = 0, end: integer, "
    "value: scalar = 0.0) -> (output: tensor<scalar>)",
    promotes=False,
)
def _mask(context: ExtensionContext, args: Arguments) -> Operand:
    """Elements of the stream before `begin` and from `end` on are overwritten."""
    emitter, x, axis = context.emitter, args.input, axis_of(args.axis, rank_of(args.input))
    position = _position(context, shape_of(x)[axis])
    return _outside(context, x, axis, position, args.begin, args.end, emitter.number(args.value, x))


@_PULSE.operator(
    "fragment tract_pulse_cumsum(input: tensor<scalar>, axis: integer, exclusive: logical = false, skip: integer = 0) "
    "-> (output: tensor<scalar>)",
    promotes=False,
)
def _cumsum(context: ExtensionContext, args: Arguments) -> Operand:
    """The sum of the stream up to each element; the first `skip` elements do not count."""
    emitter, x, axis = context.emitter, args.input, axis_of(args.axis, rank_of(args.input))
    if args.skip:
        position = _position(context, shape_of(x)[axis])
        x = _outside(context, x, axis, position, args.skip, None, emitter.number(0, x))
    own = [1 if i == axis else size for i, size in enumerate(shape_of(x))]
    if not is_known(*own):
        raise CompileError(
            f"a running sum needs known sizes but for that of its axis, the input is {list(shape_of(x))}"
        )
    before = emitter.state(f"{emitter.hint}_sum", np.zeros(own, numpy_dtype(dtype_of(x))))
    sums = apply(emitter, "add", emitter.apply(Cumulative(axis), x), before)
    size = shape_of(x)[axis]
    emitter.update(before, emitter.apply(Slice({axis: (size - 1, 1, 1)}), sums))
    if not args.exclusive:
        return sums
    return emitter.apply(Slice({axis: (0, size, 1)}), emitter.apply(Concat(axis), before, sums))


def _position(context: ExtensionContext, step: Dimension) -> Operand:
    """Returns how many elements came before this run, an int64 without axes, if each run brings `step`."""
    return context.emitter.counter("position", step)


def _outside(
    context: ExtensionContext,
    x: Operand,
    axis: int,
    position: Operand,
    begin: Dimension,
    end: Dimension | None,
    fill: Operand,
) -> Operand:
    """The elements at positions from `begin` to `end` of the stream, and `fill` instead of others."""
    emitter, size = context.emitter, shape_of(x)[axis]
    frames = apply(emitter, "add", emitter.apply(Arange(0, size, 1, "int64")), position)
    shape = [size if i == axis else 1 for i in range(rank_of(x))]
    frames = emitter.reshaped(frames, shape)
    if not (isinstance(begin, int) and begin <= 0):
        x = emitter.apply(Where(), apply(emitter, "less", frames, emitter.tensor(begin, "int64")), fill, x)
    if end is None or context.is_endless(end):
        return x
    return emitter.apply(Where(), apply(emitter, "less", frames, emitter.tensor(end, "int64")), x, fill)


def _element(context: ExtensionContext, x: Operand, axis: int, index: Operand) -> Operand:
    """The element at an index, an int64 without axes, along an axis, which stays; or the nearest one that there is."""
    return context.emitter.apply(Gather(axis, "clip"), x, context.emitter.reshaped(index, (1,)))

"""`tract_core`: spectra of signals, with complex numbers as a last axis of size 2."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.registries.axes import axis_of
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, rank_of, shape_of
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.reduction import Cumulative
from nnefc.operators.math.signal import FourierTransform, ShortTimeFourierTransform
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.shape import Reshape, Slice, Transpose
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

_CORE = registry("tract_core")


@_CORE.operator(
    "fragment tract_core_fft(input: tensor<scalar>, axis: integer, inverse: logical = false) "
    "-> (output: tensor<scalar>)"
)
def _fft(context: ExtensionContext, args: Arguments) -> Operand:
    """The inverse is not divided by the length."""
    emitter, x = context.emitter, args.input
    axis = axis_of(args.axis, rank_of(x))
    made = emitter.apply(FourierTransform(axis, inverse=args.inverse), x)
    return apply(emitter, "multiply", made, emitter.number(shape_of(x)[axis], made)) if args.inverse else made


@_CORE.operator(
    "fragment tract_core_stft(input: tensor<scalar>, axis: integer, frame: integer, stride: integer, "
    "window: tensor<scalar> = 1.0) -> (output: tensor<scalar>)"
)
def _stft(context: ExtensionContext, args: Arguments) -> Operand:
    """Frames at the axis, frequencies at the next one; a shorter window is in the middle of the frame."""
    emitter, x = context.emitter, args.input
    shape = shape_of(x)
    axis = axis_of(args.axis, len(shape))
    if axis == len(shape) - 1 or shape[-1] != 2:
        raise CompileError(f"complex elements along the axis {args.axis} are needed, the shape is {list(shape)}")
    others = [i for i in range(len(shape) - 1) if i != axis]
    real = emitter.real_parts.get(x)
    x, parts = (x, 2) if real is None else (real, 1)
    moved = emitter.apply(Transpose((*others, axis, len(shape) - 1)), x)
    signals = emitter.apply(Reshape((-1, shape[axis], parts)), moved)
    window = None
    if shape_of(args.window):
        window = emitter.known(args.window)
        if not isinstance(window, np.ndarray) or window.size > args.frame:
            raise CompileError(f"a window is needed that is known, and not longer than the frame of {args.frame}")
        before = (args.frame - window.size) // 2
        window = np.pad(window.reshape(-1), (before, args.frame - window.size - before))
    made = _frames(context, signals, window, args.stride, args.frame)
    apart = emitter.apply(Reshape((*(shape[i] for i in others), *shape_of(made)[1:])), made)
    frames = len(others)
    order = (*range(axis), frames, frames + 1, *range(axis, frames), frames + 2)
    return emitter.apply(Transpose(order), apart)


def _frames(context: ExtensionContext, signals: Operand, window: Operand | None, step: int, length: int) -> Operand:
    """Spectra of frames. The upper half of a real signal's is the lower one, backwards and conjugated."""
    emitter = context.emitter
    if shape_of(signals)[-1] == 2:
        return emitter.apply(ShortTimeFourierTransform(step, length, False), signals, window)
    half = emitter.apply(ShortTimeFourierTransform(step, length, True), signals, window)
    if length < 3:
        return half
    others = emitter.apply(Slice({2: ((length - 1) // 2, (length - 1) // 2, -1)}), half)
    conjugated = apply(emitter, "multiply", others, np.array([1, -1], np.float32))
    return emitter.apply(Concat(2), half, conjugated)


@_CORE.operator(
    "fragment tract_core_cumsum(input: tensor<scalar>, axis: integer, exclusive: logical = false, "
    "reverse: logical = false) -> (output: tensor<scalar>)"
)
def _cumsum(context: ExtensionContext, args: Arguments) -> Operand:
    operator = Cumulative(axis_of(args.axis, rank_of(args.input)), exclusive=args.exclusive, reverse=args.reverse)
    return context.emitter.apply(operator, args.input)


@_CORE.operator("fragment tract_core_complex_to_inner_dim(input: tensor<scalar>) -> (output: tensor<scalar>)")
@_CORE.operator("fragment tract_core_inner_dim_to_complex(input: tensor<scalar>) -> (output: tensor<scalar>)")
def _complex(context: ExtensionContext, args: Arguments) -> Operand:
    """Complex numbers are a last axis of two already."""
    operand: Operand = args.input
    return operand

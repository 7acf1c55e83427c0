"""`tract_transformers`: key and value caches, which keep all positions since the session began.

    k = tract_transformers_dyn_kv_cache(new, axis = 2, past_sequence_shape = [1, 2, P, 16], …);      [1, 2, P + S, 16]

The symbol `P` is how many positions came before the run: a state, that is advanced before what needs it. A state of the
largest size holds what came.
"""

from __future__ import annotations

import math

import numpy as np

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, dtype_of, numpy_dtype, rank_of, shape_of
from nnefc.operators.math.elementwise import apply
from nnefc.operators.nn.attention import Attention
from nnefc.operators.nn.cached_attention import WriteToCache
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.shape import Expand, Slice, Squeeze, Unsqueeze
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import bounds, is_known

__all__: list[str] = []

_TRANSFORMERS = registry("tract_transformers")
_CACHE = (
    "input: tensor<scalar>, name: string = '', axis: integer, datum_type: string = '', "
    "past_sequence_shape: integer[], input_sequence_shape: integer[] = []"
)


@_TRANSFORMERS.operator(
    f"fragment tract_transformers_dyn_kv_cache({_CACHE}) -> (output: tensor<scalar>)",
    promotes=False,
    limits="the size of the past is a symbol of its own with a limit, or 0",
)
@_TRANSFORMERS.operator(
    f"fragment tract_transformers_quantized_dyn_kv_cache({_CACHE}, bits: integer = 8) -> (output: tensor<scalar>)",
    promotes=False,
    limits="kept as it is, without loss",
)
def _dyn_kv_cache(context: ExtensionContext, args: Arguments) -> Operand:
    """All inputs since the session began, one after the other along the axis."""
    emitter, x = context.emitter, args.input
    if not 0 <= args.axis < rank_of(x) == len(args.past_sequence_shape):
        raise CompileError(f"{list(shape_of(x))} and {args.past_sequence_shape} have no common axis {args.axis}")
    past, shape = args.past_sequence_shape[args.axis], list(shape_of(x))
    if past == 0:
        return x
    state = context.length_state(past)
    if state is None:
        raise CompileError(
            f"the past of a cache needs a size that is a symbol of its own, it is {past}",
            hint="a symbol that inputs have, too, is theirs",
        )
    before, new, after = shape[: args.axis], shape[args.axis], shape[args.axis + 1 :]
    if not is_known(*before, *after):
        raise CompileError(f"a cache needs known sizes but for that of its axis, the input is {shape}")
    emitter.update(state, emitter.tensor(past + new, "int64"))
    rows, width, maximum = math.prod(before), math.prod(after), bounds(past)[1]
    cache = emitter.state(f"{emitter.hint}_cache", np.zeros((rows, 1, maximum, width), numpy_dtype(dtype_of(x))))
    elements = emitter.reshaped(x, (rows, 1, new, width))
    first = emitter.apply(Expand((rows,)), emitter.reshaped(state, (1,)))
    kept = emitter.apply(WriteToCache(), elements, cache, first)
    emitter.update(cache, kept)
    if bounds(past + new)[1] > maximum:  # more than there is room for, which only a further run would refuse
        whole = emitter.apply(Concat(2), emitter.apply(Slice({2: (0, past, 1)}), cache), elements)
    else:
        whole = emitter.apply(Slice({2: (0, past + new, 1)}), kept)
    return emitter.reshaped(whole, (*before, past + new, *after))


@_TRANSFORMERS.operator(
    "fragment tract_transformers_window_kv_sdpa(q: tensor<scalar>, k: tensor<scalar>, v: tensor<scalar>, "
    "axis: integer, window: integer, scale: scalar = 0.0) -> (output: tensor<scalar>)"
)
def _window_kv_sdpa(context: ExtensionContext, args: Arguments) -> Operand:
    """Attention to the last `window` positions of all runs, those of this run among them, without a causal mask."""
    emitter, axis, window = context.emitter, args.axis, args.window
    if window < 1 or axis != rank_of(args.k) - 2 or rank_of(args.k) not in (3, 4):
        raise CompileError(f"a window of {window} along the axis {axis} of {list(shape_of(args.k))} is not supported")
    before = emitter.counter("positions", shape_of(args.k)[axis])
    keys, values = (_last(context, x, axis, window) for x in (args.k, args.v))
    came = apply(emitter, "add", before, emitter.tensor(shape_of(args.k)[axis] - window, "int64"))
    seen = apply(emitter, "greater_equal", apply(emitter, "add", np.arange(window), came), np.array(0))
    q, keys, values = (emitter.apply(Unsqueeze((1,)), x) if axis == 1 else x for x in (args.q, keys, values))
    made = emitter.apply(Attention(args.scale or None), q, keys, values, emitter.reshaped(seen, (1, 1, 1, window)))
    return emitter.apply(Squeeze((1,)), made) if axis == 1 else made


def _last(context: ExtensionContext, x: Operand, axis: int, count: int) -> Operand:
    """The last elements of all runs along an axis: a state, zeros at first."""
    emitter, shape = context.emitter, shape_of(x)
    own = [*shape[:axis], count, *shape[axis + 1 :]]
    if not is_known(*own):
        raise CompileError(f"a cache needs known sizes but for that of its axis, the input is {list(shape)}")
    state = emitter.state(f"{emitter.hint}_window", np.zeros(own, numpy_dtype(dtype_of(x))))
    made: Operand = emitter.apply(Slice({axis: (shape[axis], count, 1)}), emitter.apply(Concat(axis), state, x))
    emitter.update(state, made)
    return made

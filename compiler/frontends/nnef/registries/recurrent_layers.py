"""`nnefc`: layers that keep a summary of the positions of each sequence, not the positions themselves.

    y = nnefc_causal_convolution(x, w, before, lengths);                                    [B, S, C], [C, taps]
    y = nnefc_state_space(x, time, decay, enter, leave, before, lengths);                   [B, S, H, E]

`before` and `lengths` are the results of `nnefc_positions`. Names of states begin with `recurrent_`: how many tokens
a sequence holds can be set to 0, and not to another number, for these states hold all that a sequence has read.
"""

from __future__ import annotations

import numpy as np

from nnefc.frontends.nnef.dynamic.emitter import Sequences
from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, rank_of, shape_of
from nnefc.operators.math.elementwise import apply
from nnefc.operators.nn.state_space import CausalConvolution, ShiftState, StateSpaceScan
from nnefc.operators.tensor.shape import Transpose
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import is_known

__all__: list[str] = []

_NNEFC = registry("nnefc")


@_NNEFC.operator(
    "fragment nnefc_causal_convolution(x: tensor<scalar>, weight: tensor<scalar>, before: tensor<integer>, "
    "lengths: tensor<integer>, bias: tensor<scalar> = 0.0) -> (y: tensor<scalar>)",
    promotes=False,
    limits="`before` and `lengths` are of `nnefc_positions`",
)
def _causal_convolution(context: ExtensionContext, args: Arguments) -> Operand:
    """Emit a depthwise convolution over the last `taps` positions of a sequence, its own included."""
    emitter, of = context.emitter, _sequences(context, args)
    if rank_of(args.x) != 3 or rank_of(args.weight) != 2 or shape_of(args.weight)[0] != shape_of(args.x)[2]:
        raise CompileError(f"weights {list(shape_of(args.weight))} do not fit rows {list(shape_of(args.x))}")
    channels, taps = shape_of(args.weight)
    numbers = [] if of.numbers is None else [of.numbers]
    weight = emitter.apply(Transpose((1, 0)), args.weight)
    if taps > 1:
        state = emitter.state(f"recurrent_{emitter.hint}", np.zeros((of.count, taps - 1, channels), np.float32), 0)
        made: Operand = emitter.apply(CausalConvolution(), args.x, weight, state, args.before, *numbers)
        emitter.update(state, emitter.apply(ShiftState(), args.x, args.lengths, state, *numbers))
    else:
        made = apply(emitter, "multiply", args.x, weight)
    if not rank_of(args.bias):
        return made
    return apply(emitter, "add", made, emitter.reshaped(args.bias, (channels,)))


@_NNEFC.operator(
    "fragment nnefc_state_space(x: tensor<scalar>, time: tensor<scalar>, decay: tensor<scalar>, "
    "enter: tensor<scalar>, leave: tensor<scalar>, before: tensor<integer>, lengths: tensor<integer>) "
    "-> (y: tensor<scalar>)",
    promotes=False,
    limits="`before` and `lengths` are of `nnefc_positions`",
)
def _state_space(context: ExtensionContext, args: Arguments) -> Operand:
    """`state = exp(time · decay) state + time · enter ⊗ x`, `y = leave · state`, for each head and position.

    Rows are `[B, S, H, E]`, steps of time `[B, S, H]`, decays `[H]`, or `[1, H]`; what enters and leaves a state is
    `[B, S, G, N]`, one for `H / G` heads.
    """
    emitter, of = context.emitter, _sequences(context, args)
    if any(rank_of(each) != 4 for each in (args.x, args.enter, args.leave)):
        raise CompileError("rows of a state space, and what enters and leaves its states, have four dimensions")
    heads, width = shape_of(args.x)[2:]
    groups, size = shape_of(args.enter)[2:]
    if not is_known(heads, width, groups, size) or heads % groups:
        raise CompileError(f"{heads} heads of {width} elements cannot share {groups} groups")
    state = emitter.state(f"recurrent_{emitter.hint}", np.zeros((of.count, heads, size, width), np.float32), 0)
    numbers = [] if of.numbers is None else [of.numbers]
    decay = emitter.reshaped(args.decay, (heads,))
    given = (args.x, args.time, decay, args.enter, args.leave, state, args.before, args.lengths, *numbers)
    after, made = emitter.apply(StateSpaceScan(), *given)
    emitter.update(state, after)
    found: Operand = made
    return found


def _sequences(context: ExtensionContext, args: Arguments) -> Sequences:
    """Returns what is known of the run's sequences.

    Raises:
        CompileError: `before` is not a result of `nnefc_positions`.
    """
    of = None if isinstance(args.before, np.ndarray) else context.emitter.sequences.get(args.before)
    if of is None:
        raise CompileError("'before' is not a result of 'nnefc_positions'")
    return of

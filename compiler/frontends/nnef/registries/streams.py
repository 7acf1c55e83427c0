"""`tract_extra`: running means along a stream, with a state between runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.registries.axes import axis_of
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, rank_of, shape_of
from nnefc.operators.math.elementwise import Where, apply
from nnefc.operators.math.reduction import Sum
from nnefc.operators.tensor.shape import Reshape, Transpose
from nnefc.symbolic.dims import Dimension

__all__: list[str] = []

_EXTRA = registry("tract_extra")
_Step = Callable[[Operand, Operand], tuple[Operand, Operand]]
"""A step of a scan: (element, state) → (result, new state)."""

_NORM = "input: tensor<scalar>, state: tensor<scalar>, axis: integer, alpha: scalar, skip: integer = 0, "


@_EXTRA.operator(
    f"fragment tract_extra_exp_unit_norm({_NORM}stateless: logical = false, complex: logical = false, "
    "epsilon: scalar = 1e-14) -> (output: tensor<scalar>)",
)
def _exp_unit_norm(context: ExtensionContext, args: Arguments) -> Operand:
    """`x / √s` with the running mean `s = alpha · s + (1 - alpha) · max(|x|, epsilon)`."""

    def step(x: Operand, mean: Operand) -> tuple[Operand, Operand]:
        emitter = context.emitter
        size = apply(emitter, "abs", x)
        if args.complex:
            squares = emitter.apply(Sum((rank_of(x) - 1,)), apply(emitter, "square", x))
            size = apply(emitter, "sqrt", squares)
        size = apply(emitter, "maximum", size, emitter.number(args.epsilon, size))
        mean = _mixed(context, mean, size, args.alpha)
        root = apply(emitter, "sqrt", mean)
        if args.complex:
            root = emitter.reshaped(root, (*shape_of(root), 1))
        return apply(emitter, "divide", x, root), mean

    return _running(context, args, step)


@_EXTRA.operator(
    f"fragment tract_extra_exp_mean_norm({_NORM}stateless: logical = false, scaling_factor: scalar = 1.0) "
    "-> (output: tensor<scalar>)",
)
def _exp_mean_norm(context: ExtensionContext, args: Arguments) -> Operand:
    """`(x - s) / scaling_factor` with the running mean `s = alpha · s + (1 - alpha) · x`."""

    def step(x: Operand, mean: Operand) -> tuple[Operand, Operand]:
        emitter = context.emitter
        mean = _mixed(context, mean, x, args.alpha)
        apart = apply(emitter, "subtract", x, mean)
        return apply(emitter, "divide", apart, emitter.number(args.scaling_factor, apart)), mean

    return _running(context, args, step)


def _mixed(context: ExtensionContext, mean: Operand, new: Operand, alpha: float) -> Operand:
    emitter = context.emitter
    old = apply(emitter, "multiply", mean, emitter.number(alpha, mean))
    return apply(emitter, "add", old, apply(emitter, "multiply", new, emitter.number(1 - alpha, new)))


def _running(context: ExtensionContext, args: Arguments, step: _Step) -> Operand:
    """Emit a scan along the axis that begins with the state, which is kept for the next run unless `stateless`."""
    emitter, x, rank, shape = context.emitter, args.input, rank_of(args.input), shape_of(args.input)
    axis = axis_of(args.axis, rank)
    elements = emitter.apply(Transpose((axis, *(i for i in range(rank) if i != axis))), x)
    tail = shape_of(elements)[1:]
    own = tail[:-1] if dict(args).get("complex") else tail
    state = emitter.apply(Reshape(own), args.state)
    kept = None
    if not args.stateless:
        state, kept = emitter.kept(state)
    left = None
    if args.skip:
        before = np.array(0) if args.stateless else emitter.counter("position", shape[axis])
        left = apply(emitter, "subtract", np.array(args.skip), before)
    made, last = _stepped(context, elements, state, step, shape[axis], left)
    if kept is not None:
        emitter.update(kept, last)
    return emitter.apply(Transpose((*range(1, axis + 1), 0, *range(axis + 1, rank))), made)


def _stepped(
    context: ExtensionContext, elements: Operand, state: Operand, step: _Step, count: Dimension, skipped: Operand | None
) -> tuple[Operand, Operand]:
    """All results along a new first axis, and the last state; `skipped` elements, one integer, stay as they are."""
    emitter = context.emitter

    def iteration(number: Operand, element: Operand, states: Sequence[Operand]) -> tuple[list[Operand], list[Operand]]:
        made, after = step(element, states[0])
        if skipped is not None:
            over = apply(emitter, "greater_equal", number, skipped)
            made, after = emitter.apply(Where(), over, made, element), emitter.apply(Where(), over, after, states[0])
        return [after], [made]

    if count == 1:
        (after,), (made,) = iteration(np.array(0), emitter.reshaped(elements, shape_of(elements)[1:]), [state])
        return emitter.reshaped(made, (1, *shape_of(made))), after
    (last,), (stacked,) = emitter.scan(iteration, emitter.expr(elements), [state])
    return stacked, last

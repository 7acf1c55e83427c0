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
"""Of an element and the state before it: the result and the state after it."""

_NORM = "input: tensor<scalar>, state: tensor<scalar>, axis: integer, alpha: scalar, skip: integer = 0, "


@_EXTRA.operator(
    f"fragment tract_extra_exp_unit_norm({_NORM}stateless: logical = false, complex: logical = false, "
    "epsilon: scalar = 1e-14) -> (output: tensor<scalar>)",
)
def _exp_unit_norm(context: ExtensionContext, args: Arguments) -> Operand:
    """`x / √s` with the running mean `s = alpha · s + (1 - alpha) · max(|x|, epsilon)`."""

    def step(x: Operand, mean: Operand) -> tuple[Operand, Operand]:
        at = context.at
        size = apply(at, "abs", x)
        if args.complex:
            squares = at.apply(Sum((rank_of(x) - 1,)), apply(at, "square", x))
            size = apply(at, "sqrt", squares)
        size = apply(at, "maximum", size, at.number(args.epsilon, size))
        mean = _mixed(context, mean, size, args.alpha)
        root = apply(at, "sqrt", mean)
        if args.complex:
            root = at.reshaped(root, (*shape_of(root), 1))
        return apply(at, "divide", x, root), mean

    return _running(context, args, step)


@_EXTRA.operator(
    f"fragment tract_extra_exp_mean_norm({_NORM}stateless: logical = false, scaling_factor: scalar = 1.0) "
    "-> (output: tensor<scalar>)",
)
def _exp_mean_norm(context: ExtensionContext, args: Arguments) -> Operand:
    """`(x - s) / scaling_factor` with the running mean `s = alpha · s + (1 - alpha) · x`."""

    def step(x: Operand, mean: Operand) -> tuple[Operand, Operand]:
        at = context.at
        mean = _mixed(context, mean, x, args.alpha)
        apart = apply(at, "subtract", x, mean)
        return apply(at, "divide", apart, at.number(args.scaling_factor, apart)), mean

    return _running(context, args, step)


def _mixed(context: ExtensionContext, mean: Operand, new: Operand, alpha: float) -> Operand:
    at = context.at
    old = apply(at, "multiply", mean, at.number(alpha, mean))
    return apply(at, "add", old, apply(at, "multiply", new, at.number(1 - alpha, new)))


def _running(context: ExtensionContext, args: Arguments, step: _Step) -> Operand:
    """One step after the other along the axis, from the state; it stays for the next run, unless `stateless`."""
    at, x, rank, shape = context.at, args.input, rank_of(args.input), shape_of(args.input)
    axis = axis_of(args.axis, rank)
    elements = at.apply(Transpose((axis, *(i for i in range(rank) if i != axis))), x)
    tail = shape_of(elements)[1:]
    own = tail[:-1] if dict(args).get("complex") else tail
    state = at.apply(Reshape(own), args.state)
    kept = None
    if not args.stateless:
        state, kept = at.kept(state)
    left = None
    if args.skip:
        before = np.array(0) if args.stateless else at.counter("position", shape[axis])
        left = apply(at, "subtract", np.array(args.skip), before)
    made, last = _stepped(context, elements, state, step, shape[axis], left)
    if kept is not None:
        at.update(kept, last)
    return at.apply(Transpose((*range(1, axis + 1), 0, *range(axis + 1, rank))), made)


def _stepped(
    context: ExtensionContext, elements: Operand, state: Operand, step: _Step, count: Dimension, skipped: Operand | None
) -> tuple[Operand, Operand]:
    """All results along a new first axis, and the last state; `skipped` elements, one integer, stay as they are."""
    at = context.at

    def iteration(number: Operand, element: Operand, states: Sequence[Operand]) -> tuple[list[Operand], list[Operand]]:
        made, after = step(element, states[0])
        if skipped is not None:
            over = apply(at, "greater_equal", number, skipped)
            made, after = at.apply(Where(), over, made, element), at.apply(Where(), over, after, states[0])
        return [after], [made]

    if count == 1:
        (after,), (made,) = iteration(np.array(0), at.reshaped(elements, shape_of(elements)[1:]), [state])
        return at.reshaped(made, (1, *shape_of(made))), after
    (last,), (stacked,) = at.scan(iteration, at.expr(elements), [state])
    return stacked, last

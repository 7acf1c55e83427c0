"""`tract_pulse` and `tract_extra`: what computes a stream piece by piece, and keeps a state between runs."""

from __future__ import annotations

import numpy as np
from tvm import relax

from nnefc.diagnostics import CompileError
from nnefc.frontends.nnef.dynamic.registry import Context, registry
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, dtype_of, numpy_dtype, rank_of, shape_of
from nnefc.operators.elementwise import apply
from nnefc.operators.reduction import Sum
from nnefc.operators.shape import Concat, Reshape, Slice, Transpose
from nnefc.sizes import is_known

__all__: list[str] = []

_PULSE, _EXTRA = registry("tract_pulse"), registry("tract_extra")


@_PULSE.operator(
    "fragment tract_pulse_delay(input: tensor<scalar>, axis: integer, delay: integer, overlap: integer) "
    "-> (output: tensor<scalar>)",
    promotes=False,
)
def _delay(context: Context, args: Arguments) -> Operand:
    """What came before, then the input: the last `delay + overlap` items are kept, zeros at first."""
    at, x = context.at, args.input
    shape, kept = list(shape_of(x)), args.delay + args.overlap
    if kept == 0:
        return x
    axis, size = args.axis, shape_of(x)[args.axis]
    own = [*shape[:axis], kept, *shape[axis + 1 :]]
    if not is_known(*own):
        raise CompileError(f"a delay needs known sizes but for that of its axis, the input is {shape}")
    before = at.state(f"{at.hint}_delayed", np.zeros(own, numpy_dtype(dtype_of(x))))
    whole = at.apply(Concat(axis), before, x)
    at.update(before, at.apply(Slice({axis: (size, kept, 1)}), whole))
    return at.apply(Slice({axis: (0, size + args.overlap, 1)}), whole)


_NORM = "input: tensor<scalar>, state: tensor<scalar>, axis: integer, alpha: scalar, skip: integer = 0, "


@_EXTRA.operator(
    f"fragment tract_extra_exp_unit_norm({_NORM}stateless: logical = false, complex: logical = false, "
    "epsilon: scalar = 1e-14) -> (output: tensor<scalar>)",
    limits="nothing is skipped",
)
def _exp_unit_norm(context: Context, args: Arguments) -> Operand:
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
    limits="nothing is skipped",
)
def _exp_mean_norm(context: Context, args: Arguments) -> Operand:
    """`(x - s) / scaling_factor` with the running mean `s = alpha · s + (1 - alpha) · x`."""

    def step(x: Operand, mean: Operand) -> tuple[Operand, Operand]:
        at = context.at
        mean = _mixed(context, mean, x, args.alpha)
        apart = apply(at, "subtract", x, mean)
        return apply(at, "divide", apart, at.number(args.scaling_factor, apart)), mean

    return _running(context, args, step)


def _mixed(context: Context, mean: Operand, new: Operand, alpha: float) -> Operand:
    at = context.at
    old = apply(at, "multiply", mean, at.number(alpha, mean))
    return apply(at, "add", old, apply(at, "multiply", new, at.number(1 - alpha, new)))


def _running(context: Context, args: Arguments, step: object) -> Operand:
    """One step after the other along the axis, from the state; it stays for the next run, unless `stateless`."""
    at, x, axis = context.at, args.input, args.axis
    if args.skip:
        raise CompileError("items that are skipped are not supported")
    rank, shape = rank_of(x), shape_of(x)
    items = at.apply(Transpose((axis, *(i for i in range(rank) if i != axis))), x)
    rest = shape_of(items)[1:]
    own = rest[:-1] if dict(args).get("complex") else rest
    state = at.apply(Reshape(own), args.state)
    kept = None
    if not args.stateless:
        initial = at.known(state)
        if not isinstance(initial, np.ndarray):
            raise CompileError("what a running mean begins with must be known when the model is compiled")
        kept = state = at.state(f"{at.hint}_mean", np.ascontiguousarray(initial))
    made, last = _stepped(context, items, state, step, shape[axis])
    if kept is not None:
        at.update(kept, last)
    return at.apply(Transpose((*range(1, axis + 1), 0, *range(axis + 1, rank))), made)


def _stepped(context: Context, items: Operand, state: Operand, step: object, count: object) -> tuple[Operand, Operand]:
    """All results along a new first axis, and the last state."""
    at = context.at
    assert callable(step)
    if count == 1:
        made, after = step(at.reshaped(items, shape_of(items)[1:]), state)
        return at.reshaped(made, (1, *shape_of(made))), after

    def iteration(_: relax.Expr, item: relax.Expr, states: list[relax.Expr]) -> tuple[list[Operand], list[Operand]]:
        made, after = step(item, states[0])
        return [after], [made]

    (last,), (stacked,) = at.scan(iteration, at.expr(items), [state])
    return stacked, last

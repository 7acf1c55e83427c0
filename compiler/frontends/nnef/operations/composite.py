"""Variadic operations: copy_n and add_n."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnefc.frontends.nnef.declarations import (
    Arguments,
    Dialect,
    Shape,
    ShapeError,
    ShapeRule,
    Shapes,
    operation,
    shape_of,
)
from nnefc.frontends.nnef.operations.broadcasting import spell_shape
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand
from nnefc.operators.math.elementwise import Elementwise

__all__: list[str] = []

MAX_COPIES = 100_000


def _copies(args: Arguments) -> Shapes:
    if not 1 <= args.times <= MAX_COPIES:
        raise ShapeError(f"'times' must be between 1 and {MAX_COPIES}, it is {args.times}", "times")
    return [shape_of(args.x)] * args.times


@operation(
    "fragment copy_n<?>(x: tensor<?>, times: integer) -> (y: tensor<?>[])",
    shape=_copies,
    dialects={Dialect.FINAL},
    definition="y = [x] * times;",
    target="nothing: the tensor itself",
)
@operation(
    "fragment copy_n(x: tensor, times: extent) -> (y: tensor[])",
    shape=_copies,
    dialects={Dialect.PROVISIONAL},
    definition="y = [x] * times;",
    target="nothing: the tensor itself",
)
def _copy_n(lowering: Lowering, args: Arguments) -> list[Operand]:
    return [lowering.operand(args.x)] * int(args.times)


def _sum_rule(empty: Shape) -> ShapeRule:
    """The sum of no tensors is zero, in the shape that the dialect's definition gives it."""

    def rule(args: Arguments) -> Shape:
        shapes = list(dict.fromkeys(shape_of(value) for value in args.x)) or [empty]
        if len(shapes) > 1:
            raise ShapeError(f"the shapes must be equal: {', '.join(map(spell_shape, shapes))}", "x")
        return shapes[0]

    return rule


def _lower_sum(empty: Shape) -> Callable[[Lowering, Arguments], Operand]:
    """Summed from the left, without the zero that ends the standard's recursion."""

    def lower(lowering: Lowering, args: Arguments) -> Operand:
        if not args.x:
            return np.zeros(empty, np.float32)
        operands = lowering.operands(args.x)
        return operands[0] if len(operands) == 1 else Elementwise("add").lower(lowering, *operands)

    return lower


for _dialect, _empty, _zero in (
    (Dialect.FINAL, (1,), "constant(shape = [1], value = [0.0])"),
    (Dialect.PROVISIONAL, (), "0.0"),
):
    operation(
        "fragment add_n(x: tensor<scalar>[]) -> (y: tensor<scalar>)",
        shape=_sum_rule(_empty),
        dialects={_dialect},
        definition=f"y = x[0] + add_n(x[1:]) if length_of(x) > 0 else {_zero};",
        target="R.add",
    )(_lower_sum(_empty))

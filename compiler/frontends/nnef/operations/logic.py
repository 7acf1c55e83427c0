"""Comparisons, logical operations, and select."""

from __future__ import annotations

from nnefc.frontends.nnef.declarations import Arguments, Dialect, operation
from nnefc.frontends.nnef.operations.broadcasting import align, broadcast_rule
from nnefc.frontends.nnef.operations.elementwise import declare
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand, dtype_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Where

__all__: list[str] = []

for _name in ("lt", "gt", "le", "ge", "eq", "ne"):
    declare(_name, "x", "y", result="logical")

for _name in ("and", "or"):
    declare(_name, "x", "y", operand="logical", result="logical")

declare("not", "x", operand="logical", result="logical")


@operation(
    "fragment select<?>(condition: tensor<logical>, true_value: tensor<?>, false_value: tensor<?>) "
    "-> (output: tensor<?>)",
    shape=broadcast_rule("condition", "true_value", "false_value"),
    dialects={Dialect.FINAL},
    target="R.where",
)
@operation(
    "fragment select(condition: tensor<logical>, true_value: tensor, false_value: tensor) -> (output: tensor)",
    shape=broadcast_rule("condition", "true_value", "false_value"),
    dialects={Dialect.PROVISIONAL},
    target="R.where",
)
def _select(lowering: Lowering, args: Arguments) -> Operand:
    operands = align(lowering, lowering.operands((args.condition, args.true_value, args.false_value)))
    condition, yes, no = operands
    if dtype_of(yes) != dtype_of(no):  # integers of different widths
        yes, no = (lowering.bound(Cast("int64").lower(lowering, value)) for value in (yes, no))
    return Where().lower(lowering, condition, yes, no)

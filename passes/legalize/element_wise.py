"""Legalizes element-wise operators as the operator library defines them, where TVM's own legalization differs.

NaN stays so: `max(a, b)` is `a if a > b else b`, and so of TVM's own `max(x, 0)` the result is 0.
With the operands in the other order it is the element itself, at the same cost.

    relu(x)              →      max(0, x)
    clip(x, a, b)        →      min(b, max(a, x))
    maximum(x, y)        →      x if x > y or isnan(x) else y
    not_equal(x, y)      →      x != y or isnan(x) or isnan(y)
    where(c, x, y)       →      x if c else y                    (TVM's own compares c, as an integer, with 0)
    x * 0, 0 / x         →      x * zeros[0], zeros[0] / x       (TVM's own are 0, even where x is infinite, or 0)
    x < y                →      int(x < y) ≠ 0                   (of TVM's own, `not x < y` is taken for `y <= x`)
    full(s, inf)         →      inf at each index                (TVM's own fails where the value is infinite or NaN)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from tvm import relax, te, tirx

from nnefc.ir.kernel_calls import call_te
from nnefc.operators.math.elementwise import element_at
from nnefc.operators.math.functions import FUNCTIONS
from nnefc.passes.graph.rewriter import array_of, is_constant

__all__ = ["ELEMENT_WISE"]

_Legalization: TypeAlias = "Callable[[relax.BlockBuilder, relax.Call], relax.Expr]"


def _relu(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return _computed(builder, call, lambda x: _at_least(x, 0.0))


def _clip(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    low, high = (float(bound.value) for bound in call.args[1:])
    return _computed(builder, call, lambda x: _at_most(_at_least(x, low), high), 1)


def _at_least(x: tirx.Expr, low: float) -> tirx.Expr:
    return tirx.Max(tirx.const(low, x.ty.dtype), x)


def _at_most(x: tirx.Expr, high: float) -> tirx.Expr:
    return tirx.Min(tirx.const(high, x.ty.dtype), x)


def _where(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return _kernel(builder, call, call.args, tirx.Select)


def _comparison(name: str) -> _Legalization:
    return lambda builder, call: _computed(builder, call, FUNCTIONS[name])


def _factor(scalar: Callable[..., tirx.Expr]) -> _Legalization:
    """Returns the legalization of a product or a quotient, which must not fold a factor of 0."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if any(_is_zero(operand) for operand in call.args):
            return _computed(builder, call, scalar)
        return call.op.get_attr("FLegalize")(builder, call)

    return legalize


def _is_zero(operand: relax.Expr) -> bool:
    return is_constant(operand) and array_of(operand).size == 1 and not array_of(operand).all()


def _full(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    value = call.args[1]
    if not is_constant(value) or np.isfinite(array_of(value)).all():
        return call.op.get_attr("FLegalize")(builder, call)
    return _kernel(builder, call, (), lambda: tirx.const(array_of(value).item(), call.ty.dtype))


def _extremum(name: str, of_numbers: Callable[..., tirx.Expr]) -> _Legalization:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        x, y = call.args
        if _of_numbers(y):
            return _computed(builder, call, lambda x, y: of_numbers(y, x))
        return _computed(builder, call, of_numbers if _of_numbers(x) else FUNCTIONS[name])

    return legalize


def _of_numbers(operand: relax.Expr) -> bool:
    """Whether an operand is a constant without NaN."""
    return is_constant(operand) and not np.isnan(array_of(operand)).any()


def _computed(
    builder: relax.BlockBuilder, call: relax.Call, scalar: Callable[..., Any], operands: int | None = None
) -> relax.Expr:
    """Applies `scalar` to each element of the first operands; integers keep TVM's own legalization."""
    args = call.args[:operands]
    if not str(args[-1].ty.dtype).startswith(("float", "bfloat")):
        return call.op.get_attr("FLegalize")(builder, call)
    return _kernel(builder, call, args, scalar)


def _kernel(
    builder: relax.BlockBuilder, call: relax.Call, args: Sequence[relax.Expr], scalar: Callable[..., Any]
) -> relax.Expr:
    name, shape = call.op.name.rpartition(".")[2], tuple(call.ty.shape)

    def element(tensors: Sequence[te.Tensor], index: Sequence[tirx.Var]) -> tirx.Expr:
        return scalar(*(element_at(tensor, index, shape) for tensor in tensors))

    def compute(*tensors: te.Tensor) -> te.Tensor:
        return te.compute(shape, lambda *index: element(tensors, index), name=name)

    return call_te(builder, compute, *args, name=name)


_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")

ELEMENT_WISE: Mapping[str, _Legalization] = {
    "relax.nn.relu": _relu,
    "relax.clip": _clip,
    "relax.full": _full,
    "relax.maximum": _extremum("maximum", tirx.Max),
    "relax.minimum": _extremum("minimum", tirx.Min),
    "relax.multiply": _factor(operator.mul),
    "relax.divide": _factor(operator.truediv),
    **{f"relax.{name}": _comparison(name) for name in _COMPARISONS},
    "relax.where": _where,
}
"""The legalizations of these operators, for `relax.transform.LegalizeOps`."""

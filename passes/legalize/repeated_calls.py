"""Legalizes only once all calls of one operator on tensors of the same types.

    b = relu(a)     # a: [1, 4, 56, 56, 16]           b = call_tir(relu, a)       made by the legalization of `relu`
    …                                           →     …
    d = relu(c)     # c: [1, 4, 56, 56, 16]           d = call_tir(relu, c)       the same kernel, without making it

The kernel of an element-wise operator follows from the types of its operands, and a network has each operator on the
same types dozens of times. To make a kernel takes TVM a millisecond, only to find out that it has an equal one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tvm import relax

from nnefc.passes.graph.rewriter import is_call, is_constant, operands, shape_of
from nnefc.symbolic.dims import is_known

__all__ = ["repeating"]

Legalization: TypeAlias = "Callable[[relax.BlockBuilder, relax.Call], relax.Expr]"

_ARITHMETIC = ("relax.add", "relax.subtract", "relax.multiply", "relax.divide")
"""Operators whose kernels do not depend on the values of constants with several elements."""

_FUNCTIONS = ("abs", "exp", "log", "negative", "nn.gelu", "nn.relu", "rsqrt", "sigmoid", "sqrt", "tanh")


def repeating(legalizations: Mapping[str, Legalization]) -> dict[str, Legalization]:
    """Returns the legalizations of a module, in which the commonest element-wise operators make each kernel once."""
    made: dict[object, relax.Call] = {}
    names = (*_ARITHMETIC, *(f"relax.{name}" for name in _FUNCTIONS))
    return {**legalizations, **{name: _once(name, legalizations.get(name, _of_tvm), made) for name in names}}


def _of_tvm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return call.op.get_attr("FLegalize")(builder, call)


def _once(name: str, legalize: Legalization, made: dict[object, relax.Call]) -> Legalization:
    """Returns a legalization that remembers in `made` the first call of each kernel."""

    def legalized(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        given = operands(call)
        key = _key(name, call, given)
        if key in made:
            first = made[key]
            return relax.call_tir(first.args[0], given, first.ty_args[0])
        result = legalize(builder, call)
        if key is not None and _reads(result, given):
            made[key] = result
        return result

    return legalized


def _key(name: str, call: relax.Call, given: Sequence[relax.Expr]) -> object:
    """Returns the key that determines the kernel of a call; None if it depends on values of constants or on dynamic
    sizes.
    """
    if call.attrs is not None or not all(isinstance(operand.ty, relax.TensorType) for operand in given):
        return None
    shapes = [shape_of(operand) for operand in given]
    constants = [shape for shape, operand in zip(shapes, given, strict=True) if is_constant(operand)]
    if constants and (name not in _ARITHMETIC or any(math.prod(shape) == 1 for shape in constants)):
        return None
    if not all(is_known(*shape) for shape in shapes):
        return None
    return name, *zip(shapes, (str(operand.ty.dtype) for operand in given), strict=True)


def _reads(result: relax.Expr, given: Sequence[relax.Expr]) -> bool:
    """Returns whether the result of a legalization is a call of a kernel on all operands, in their order."""
    if not is_call(result, "call_tir") or not isinstance(result.ty_args[0], relax.TensorType):
        return False
    fields = result.args[1].fields[:]
    return len(fields) == len(given) and all(map(relax.Expr.same_as, fields, given))

"""`quantize` and `dequantize`: between floats and integers with a scale and a zero point.

quantize(x, s, z)       =      cut(round(x / s) + z)          rounded to even, cut to the range of the result's type
dequantize(q, s, z)     =      (q - z) · s
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import tvm
from tvm import relax, te, tirx

from nnefc.kernel_calls import call_te
from nnefc.passes.graph.rewriter import array_of, is_constant, shape_of

__all__ = ["QUANTIZATION"]

_Legalization: TypeAlias = "Callable[[relax.BlockBuilder, relax.Call], relax.Expr]"


def _quantize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    dtype = str(call.attrs.out_dtype)
    low, high = (tirx.const(int(limit(dtype).value), "float32") for limit in (tvm.tirx.min_value, tvm.tirx.max_value))

    def element(item: tirx.Expr, scale: tirx.Expr, zero: tirx.Expr) -> tirx.Expr:
        rounded = tirx.nearbyint(item / scale)
        moved = rounded if _is_zero(call.args[2]) else rounded + zero.astype("float32")
        return tirx.max(tirx.min(moved, high), low).astype("int32").astype(dtype)

    return _each(builder, call, element, "quantize")


def _dequantize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def element(item: tirx.Expr, scale: tirx.Expr, zero: tirx.Expr) -> tirx.Expr:
        wide = item.astype("int32")
        moved = wide if _is_zero(call.args[2]) else wide - zero.astype("int32")
        return moved.astype("float32") * scale

    return _each(builder, call, element, "dequantize")


def _is_zero(zero: relax.Expr) -> bool:
    return is_constant(zero) and not array_of(zero).any()


def _each(
    builder: relax.BlockBuilder,
    call: relax.Call,
    element: Callable[[tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr],
    name: str,
) -> relax.Expr:
    """`element(item, scale, zero)` of each item; parameters of the whole tensor that are known are part of the code."""
    x, *parameters = call.args
    axis = int(call.attrs.axis)  # of no meaning where all items have the same parameters, as that of a scalar
    fixed = [is_constant(parameter) and not shape_of(parameter) for parameter in parameters]

    def compute(x: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        def item(*index: tirx.Var) -> tirx.Expr:
            rest = iter(tensors)
            values = [
                _value(p) if is_fixed else _at(next(rest), index, axis)
                for p, is_fixed in zip(parameters, fixed, strict=True)
            ]
            return element(x(*index), *values)

        return te.compute(x.shape, item, name=name)

    computed = [parameter for parameter, is_fixed in zip(parameters, fixed, strict=True) if not is_fixed]
    return call_te(builder, compute, x, *computed, name=name)


def _value(parameter: relax.Expr) -> tirx.Expr:
    return tirx.const(array_of(parameter)[()].item(), str(parameter.ty.dtype))


def _at(parameter: te.Tensor, index: Sequence[tirx.Var], axis: int) -> tirx.Expr:
    return parameter(index[axis]) if len(parameter.shape) else parameter()


QUANTIZATION: Mapping[str, _Legalization] = {"relax.quantize": _quantize, "relax.dequantize": _dequantize}
"""How `relax.transform.LegalizeOps` makes computations of these operators."""

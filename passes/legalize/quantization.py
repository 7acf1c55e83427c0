"""Legalizes `quantize` and `dequantize`, using what is known of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tvm import relax, te, tirx

from nnefc.ir.kernel_calls import call_te
from nnefc.passes.compute.dot.quantize_dequantize import dequantized, quantized
from nnefc.passes.graph.rewriter import array_of, is_constant, shape_of

__all__ = ["QUANTIZATION"]

_Legalization: TypeAlias = "Callable[[relax.BlockBuilder, relax.Call], relax.Expr]"


def _quantize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    dtype = str(call.attrs.out_dtype)
    return _each(builder, call, lambda entry, scale, zero: quantized(entry, scale, zero, dtype), "quantize")


def _dequantize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return _each(builder, call, dequantized, "dequantize")


def _each(
    builder: relax.BlockBuilder,
    call: relax.Call,
    element: Callable[[tirx.Expr, tirx.Expr, tirx.Expr | None], tirx.Expr],
    name: str,
) -> relax.Expr:
    """Applies `element(element, scale, zero)` to each element; constant parameters of the whole tensor become part of
    the code.
    """
    data, *parameters = call.args
    axis = int(call.attrs.axis)  # unused where all elements share their parameters
    fixed = [is_constant(parameter) and not shape_of(parameter) for parameter in parameters]
    no_zero = is_constant(parameters[1]) and not array_of(parameters[1]).any()

    def compute(x: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        def entry(*index: tirx.Var) -> tirx.Expr:
            tail = iter(tensors)
            scale, zero = (
                _value(p) if is_fixed else _at(next(tail), index, axis)
                for p, is_fixed in zip(parameters, fixed, strict=True)
            )
            return element(x(*index), scale, None if no_zero else zero)

        return te.compute(x.shape, entry, name=name)

    computed = [parameter for parameter, is_fixed in zip(parameters, fixed, strict=True) if not is_fixed]
    return call_te(builder, compute, data, *computed, name=name)


def _value(parameter: relax.Expr) -> tirx.Expr:
    return tirx.const(array_of(parameter)[()].item(), str(parameter.ty.dtype))


def _at(parameter: te.Tensor, index: Sequence[tirx.Var], axis: int) -> tirx.Expr:
    return parameter(index[axis]) if len(parameter.shape) else parameter()


QUANTIZATION: Mapping[str, _Legalization] = {"relax.quantize": _quantize, "relax.dequantize": _dequantize}
"""The legalizations of these operators, for `relax.transform.LegalizeOps`."""

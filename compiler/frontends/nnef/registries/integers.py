"""`tract_core`: products and convolutions of quantized integers.

Each operand has a scale and a zero point:

    y = tract_core_qconv(x, w, b, …, a0 = 3, a_scale = 0.1, b0 = 0, b_scale = 0.02, c0 = -5, c_scale = 0.25);

They are computed on what the integers stand for, `(q - zero) * scale`; passes make one kernel of integers of that. A
bias has the product of both scales. The result is what its type says: `i8` are the integers alone, `QI8(Z:-5 S:0.25)`
integers that go on to stand for reals.
"""

from __future__ import annotations

import re

import numpy as np

from nnefc.frontends.nnef.dynamic.quantized import zero_points
from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.dynamic.values import Value
from nnefc.frontends.nnef.registries.core import product_along
from nnefc.frontends.nnef.registries.standard import as_standard
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, dtype_of, numpy_dtype, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.einsum import Einsum
from nnefc.operators.math.elementwise import apply
from nnefc.operators.nn.quantization import Dequantization
from nnefc.operators.tensor.shape import Reshape, Transpose
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

_CORE = registry("tract_core")
_KNOWN = "scales and zero points are known when the model is compiled"
_SCALES = ", ".join(f"{each}0: integer = 0, {each}_scale: scalar = 1.0" for each in "abc")
_TYPE = re.compile(r"(Q?)([IU])(8|32)(?:\(.*\))?", re.IGNORECASE)


@_CORE.operator(
    "fragment tract_core_qconv(input: tensor<scalar>, filter: tensor<scalar>, bias: tensor<scalar> = 0.0, "
    "group: integer = 1, dilation: integer[] = [], stride: integer[] = [], padding: (integer, integer)[] = [], "
    f"border: string = 'constant', {_SCALES}, output_dt: string = '') -> (output: tensor<scalar>)",
    sizes=True,
    limits=_KNOWN,
)
def _qconv(context: ExtensionContext, args: Arguments) -> Value:
    """A convolution; without a type its result stands for reals, with integers of the input's type."""
    x, w, bias = _reals(context, args, args.input, args.filter, args.bias)
    given = {name: args[name] for name in ("dilation", "stride", "padding", "border")}
    made = as_standard(context, "conv", Arguments(given), input=x, filter=w, bias=bias, groups=args.group)
    own = context.quantized.dtype_of(args.input) or dtype_of(context.emitter.tensor(args.input))
    dtype = args.output_dt or ("QU8" if own == "uint8" else "QI8")
    return _result(context, args, made, dtype)


@_CORE.operator(
    "fragment tract_core_qmatmul(A: tensor<scalar>, B: tensor<scalar>, bias: tensor<scalar> = 0.0, "
    f"axes: integer[] = [], {_SCALES}, output_type: string) -> (output: tensor<scalar>)",
    sizes=True,
    limits=_KNOWN,
)
def _qmatmul(context: ExtensionContext, args: Arguments) -> Value:
    """A product along axes as `tract_core_matmul` has them."""
    a, b, bias = _reals(context, args, args.A, args.B, args.bias)
    made = apply(context.emitter, "add", product_along(context, a, b, args.axes), bias)
    return _result(context, args, made, args.output_type)


@_CORE.operator(
    "fragment tract_core_einsum_q(inputs: tensor<scalar>[], expr: string, acc: string = '', output: string, "
    f"bias: tensor<scalar> = 0.0, {_SCALES}) -> (result: tensor<scalar>)",
    sizes=True,
    limits=_KNOWN,
)
def _einsum_q(context: ExtensionContext, args: Arguments) -> Value:
    """A product as an expression says; that has a bias after the operands, and then parameters of both."""
    emitter = context.emitter
    found = re.fullmatch(r"([^,]*),([^,]*)((?:,[^,]*)*)->(.*)", args.expr.replace(" ", ""))
    if found is None or len(args.inputs) != 2:
        raise CompileError(f"'{args.expr}' is no product of two tensors")
    a, b, bias = _reals(context, args, args.inputs[0], args.inputs[1], args.bias)
    made = emitter.apply(Einsum(f"{found[1]},{found[2]}->{found[4]}"), a, b)
    own = found[3].split(",")[1] if found[3] else ""
    if own and len(shape_of(bias)) == len(own):  # its axes, in the order of the result's
        order = tuple(sorted(range(len(own)), key=lambda axis: found[4].index(own[axis])))
        sizes = dict(zip(own, shape_of(bias), strict=True))
        permuted = emitter.apply(Transpose(order), bias)
        bias = emitter.apply(Reshape(tuple(sizes.get(letter, 1) for letter in found[4])), permuted)
    return _result(context, args, apply(emitter, "add", made, bias), args.output)


def _reals(context: ExtensionContext, args: Arguments, a: Value, b: Value, bias: Value) -> list[Operand]:
    """Dequantizes both operands and the bias to float32."""
    operands = [_real(context, a, args.a_scale, args.a0), _real(context, b, args.b_scale, args.b0)]
    return [*operands, _real(context, bias, args.a_scale * args.b_scale, 0)]


def _real(context: ExtensionContext, value: Value, scale: float, zero: int) -> Operand:
    emitter = context.emitter
    if not isinstance(value, list) and context.quantized.dtype_of(value) is not None:
        return emitter.expr(value)  # what an entry of graph.quant or another of these operators says already
    operand = emitter.tensor(value, "int32")
    if numpy_dtype(dtype_of(operand)).kind == "f":
        return operand
    if dtype_of(operand) not in ("int8", "uint8"):
        operand = emitter.apply(Cast("int32"), operand)
    zeros = zero_points(zero, dtype_of(operand))
    return emitter.apply(Dequantization(), emitter.expr(operand), np.array(scale, np.float32), zeros)


def _result(context: ExtensionContext, args: Arguments, made: Operand, type_name: str) -> Value:
    """Reals as integers of a type, or as what such integers stand for."""
    if type_name.lower() == "f32":
        return made
    found = _TYPE.fullmatch(type_name)
    if found is None:
        raise CompileError(f"the element type '{type_name}' of a product of integers is not supported")
    dtype = f"{'u' if found[2] in 'uU' else ''}int{found[3]}"
    if dtype != "int32":
        value = context.quantized.rounded(made, args.c_scale, args.c0, dtype)
        return value if found[1] else context.quantized.codes_of(value)
    emitter = context.emitter
    quotient = apply(emitter, "round", apply(emitter, "divide", made, emitter.number(args.c_scale, made)))
    codes = apply(emitter, "add", emitter.apply(Cast("int32"), quotient), zero_points(args.c0, "int32"))
    return made if found[1] else codes

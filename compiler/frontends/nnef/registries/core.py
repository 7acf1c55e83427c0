"""`tract_core`: element-wise functions, casts, shapes, reductions, products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.dynamic.sizes import cast_sizes
from nnefc.frontends.nnef.dynamic.values import Value, dtype_named, is_sizes, is_tensor
from nnefc.frontends.nnef.registries.axes import axes_of
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, dtype_of, rank_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.einsum import Einsum
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.math.reduction import ArgMinMax, Product
from nnefc.operators.nn.activation import HardSwish, Silu, Softmax
from nnefc.operators.nn.normalization import RootMeanSquare
from nnefc.operators.tensor.creation import Arange
from nnefc.operators.tensor.shape import Expand, Transpose
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.arrays import of_elements

__all__ = ["cast_result", "product_along"]

_CORE = registry("tract_core")
_X = "(x: tensor<scalar>) -> (y: tensor<scalar>)"


def _functions() -> None:
    """Operators that are one function of the table."""
    for name, function, parameters, content in (
        ("tract_core_erf", "erf", "x", "scalar"),
        ("tract_core_round_even", "round", "x", "scalar"),
        ("tract_core_is_nan", "isnan", "x", "scalar"),
        ("tract_core_xor", "logical_xor", "xy", "logical"),
        ("tract_core_bitand", "bitwise_and", "xy", "integer"),
        ("tract_core_bitor", "bitwise_or", "xy", "integer"),
        ("tract_core_bitxor", "bitwise_xor", "xy", "integer"),
        ("tract_core_bitnot", "bitwise_not", "x", "integer"),
        ("tract_shl", "left_shift", "xy", "integer"),
        ("tract_shr", "right_shift", "xy", "integer"),
    ):

        def lower(context: ExtensionContext, args: Arguments, function: str = function) -> Operand:
            return apply(context.emitter, function, *args.values())

        declared = ", ".join(f"{parameter}: tensor<{content}>" for parameter in parameters)
        _CORE.operator(f"fragment {name}({declared}) -> (z: tensor<{content}>)")(lower)


_functions()


@_CORE.operator("fragment tract_core_cast<?>(input: tensor<?>, to: string = '') -> (output: tensor<?>)", sizes=True)
def _cast(context: ExtensionContext, args: Arguments) -> Value:
    """Reals become integers towards zero, within their type. Without a type it is that of `graph.quant`."""
    if not args.to:
        return args.input
    emitter, dtype = context.emitter, dtype_named(args.to)
    value = emitter.known(args.input) if dtype == "tdim" else args.input
    if not is_tensor(value):
        value = of_elements([value], ()) if isinstance(value, int) or is_sizes(value) else emitter.tensor(value)
    if is_sizes(value):
        return cast_sizes(value, dtype)
    if dtype == "tdim":
        if not isinstance(value, np.ndarray):
            return emitter.apply(Cast("int64"), value)
        return of_elements([int(element) for element in value.reshape(-1)], value.shape)
    return emitter.apply(Cast(dtype, limits=True), value)


@_CORE.operator("fragment tract_core_external<?>(datum_type: string, shape: integer[]) -> (output: tensor<?>)")
def _external(context: ExtensionContext, args: Arguments) -> Value:
    """An input; stands for nothing in a fragment."""
    raise CompileError("inputs are made in the graph, not in a fragment that the graph has under this name")


@_CORE.operator("fragment tract_core_shape_of<?>(input: tensor<?>) -> (shape: integer[])", sizes=True)
def _shape_of(context: ExtensionContext, args: Arguments) -> Value:
    shape = args.input.shape if isinstance(args.input, np.ndarray) else shape_of(context.emitter.tensor(args.input))
    return of_elements(list(shape), (len(shape),))


@_CORE.operator(
    "fragment tract_core_range<?>(start: tensor<?>, end: tensor<?>, step: tensor<?> = 1) -> (output: tensor<?>)",
    sizes=True,
)
def _range(context: ExtensionContext, args: Arguments) -> Value:
    """Integers, or reals if one of the three is real; without the end."""
    emitter = context.emitter
    given = [emitter.known(args[name]) for name in ("start", "end", "step")]
    elements = [
        element.reshape(()).item() if isinstance(element, np.ndarray) and element.size == 1 else element
        for element in given
    ]
    if any(is_tensor(element) for element in elements):
        raise CompileError("the ends of a range must be known when the model is compiled, or follow from sizes")
    real = any(isinstance(element, float) for element in elements)
    return emitter.apply(Arange(elements[0], elements[1], elements[2], "float32" if real else "int64"))


@_CORE.operator(
    "fragment tract_core_broadcast<?>(input: tensor<?>, shape: integer[]) -> (output: tensor<?>)", promotes=False
)
def _broadcast(context: ExtensionContext, args: Arguments) -> Operand:
    return context.emitter.apply(Expand(tuple(args.shape)), args.input)


@_CORE.operator(f"fragment tract_core_hard_swish{_X}")
def _hard_swish(context: ExtensionContext, args: Arguments) -> Operand:
    return context.emitter.apply(HardSwish(), args.x)


@_CORE.operator("fragment tract_core_silu(x: tensor<scalar>) -> (y: tensor<scalar>)")
def _silu(context: ExtensionContext, args: Arguments) -> Operand:
    return context.emitter.apply(Silu(), args.x)


@_CORE.operator(
    "fragment tract_core_gelu_approx(input: tensor<scalar>, fast_impl: logical = false) -> (y: tensor<scalar>)"
)
def _gelu_approx(context: ExtensionContext, args: Arguments) -> Operand:
    """`x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))`, with x² in place of x³ if `fast_impl`."""
    emitter, x = context.emitter, args.input
    power = apply(emitter, "square" if args.fast_impl else "cube", x)
    inner = apply(emitter, "add", x, apply(emitter, "multiply", power, emitter.number(0.044715, x)))
    share = apply(emitter, "tanh", apply(emitter, "multiply", inner, emitter.number(math.sqrt(2 / math.pi), x)))
    half = apply(emitter, "multiply", x, emitter.number(0.5, x))
    return apply(emitter, "multiply", half, apply(emitter, "add", share, emitter.number(1, x)))


@_CORE.operator("fragment tract_core_pow_const(input: tensor<scalar>, exponent: scalar) -> (y: tensor<scalar>)")
def _pow_const(context: ExtensionContext, args: Arguments) -> Operand:
    return apply(context.emitter, "power", args.input, context.emitter.number(args.exponent, args.input))


@_CORE.operator(
    "fragment tract_core_is_inf(x: tensor<scalar>, detect_positive: logical = true, detect_negative: logical = true) "
    "-> (y: tensor<logical>)"
)
def _is_inf(context: ExtensionContext, args: Arguments) -> Operand:
    emitter, x = context.emitter, args.x
    if args.detect_positive and args.detect_negative:
        return apply(emitter, "isinf", x)
    if not (args.detect_positive or args.detect_negative):
        return emitter.apply(Expand(shape_of(x)), np.array(False))
    return apply(emitter, "isposinf" if args.detect_positive else "isneginf", x)


@_CORE.operator(
    "fragment tract_core_product_reduce(input: tensor<scalar>, axes: integer[]) -> (output: tensor<scalar>)"
)
def _product(context: ExtensionContext, args: Arguments) -> Operand:
    return context.emitter.apply(Product(axes_of(args.axes, args.input), True), args.input)


for _name, _largest in (("argmax", True), ("argmin", False)):

    @_CORE.operator(
        f"fragment tract_core_{_name}_reduce_last(input: tensor<scalar>, axes: integer[]) -> (output: tensor<integer>)"
    )
    def _arg(context: ExtensionContext, args: Arguments, largest: bool = _largest) -> Operand:
        """Emit the index of the maximum or minimum; of equal elements, the last one."""
        operator = ArgMinMax(axes_of(args.axes, args.input), True, largest, last=True)
        return context.emitter.apply(operator, args.input)


@_CORE.operator(
    "fragment tract_core_softmax(x: tensor<scalar>, axes: integer[], exp: string = '') -> (y: tensor<scalar>)"
)
def _softmax(context: ExtensionContext, args: Arguments) -> Operand:
    return context.emitter.apply(Softmax(axes_of(args.axes, args.x)), args.x)


@_CORE.operator("fragment tract_core_log_softmax(x: tensor<scalar>, axes: integer[]) -> (y: tensor<scalar>)")
def _log_softmax(context: ExtensionContext, args: Arguments) -> Operand:
    return context.emitter.apply(Softmax(axes_of(args.axes, args.x), logarithm=True), args.x)


@_CORE.operator(
    "fragment tract_core_rms_norm(input: tensor<scalar>, axis: integer, eps: scalar = 1e-6) -> (y: tensor<scalar>)"
)
def _rms_norm(context: ExtensionContext, args: Arguments) -> Operand:
    (axis,) = axes_of([args.axis], args.input)
    return context.emitter.apply(RootMeanSquare((axis,), args.eps), args.input)


@_CORE.operator(
    "fragment tract_core_scaled_rms_norm(input: tensor<scalar>, weight: tensor<scalar>, axis: integer, "
    "eps: scalar = 1e-6, out_dt: string = '') -> (y: tensor<scalar>)"
)
def _scaled_rms_norm(context: ExtensionContext, args: Arguments) -> Operand:
    """Emit an RMS normalization with a weight for each position of the axis."""
    emitter, (axis,) = context.emitter, axes_of([args.axis], args.input)
    weights = emitter.reshaped(
        args.weight, [shape_of(args.input)[i] if i == axis else 1 for i in range(rank_of(args.input))]
    )
    made = apply(emitter, "multiply", emitter.apply(RootMeanSquare((axis,), args.eps), args.input), weights)
    return cast_result(context, made, args.out_dt)


@_CORE.operator(
    "fragment tract_core_clamped_swiglu(gate: tensor<scalar>, up: tensor<scalar>, alpha: scalar = 1.702, "
    "limit: scalar = 7.0) -> (y: tensor<scalar>)"
)
def _clamped_swiglu(context: ExtensionContext, args: Arguments) -> Operand:
    """`g sigmoid(alpha g) (l + 1)` of both, cut off at the limit: `g` from above, `l` on both sides."""
    emitter, high = context.emitter, context.emitter.number(args.limit, args.gate)
    gate = apply(emitter, "minimum", args.gate, high)
    linear = apply(emitter, "maximum", apply(emitter, "minimum", args.up, high), emitter.number(-args.limit, args.up))
    return apply(
        emitter,
        "multiply",
        emitter.apply(Silu(args.alpha), gate),
        apply(emitter, "add", linear, emitter.number(1, linear)),
    )


@_CORE.operator(
    "fragment tract_core_einsum(inputs: tensor<scalar>[], expr: string, acc: string = '', output: string = '') "
    "-> (result: tensor<scalar>)"
)
def _einsum(context: ExtensionContext, args: Arguments) -> Operand:
    made = context.emitter.apply(Einsum(args.expr), *args.inputs)
    return context.emitter.apply(Cast(dtype_named(args.output)), made) if args.output else made


@_CORE.operator(
    "fragment tract_core_matmul(A: tensor<scalar>, B: tensor<scalar>, axes: integer[] = []) -> (output: tensor<scalar>)"
)
def _matmul(context: ExtensionContext, args: Arguments) -> Operand:
    return product_along(context, args.A, args.B, args.axes)


def product_along(context: ExtensionContext, a: Operand, b: Operand, axes: Sequence[int]) -> Operand:
    """A product; axes are those of rows and sums of A, of sums and columns of B, of rows and columns of the result."""
    emitter, rank = context.emitter, rank_of(a)
    if not axes:
        return emitter.apply(MatMul(), a, b)
    if len(axes) != 6:
        raise CompileError(f"six axes are needed, {len(axes)} are given")
    am, ak, bk, bn, cm, cn = axes
    a, b = (emitter.apply(Transpose(_last(rank, *pair)), x) for x, pair in ((a, (am, ak)), (b, (bk, bn))))
    order = _last(rank, cm, cn)
    return emitter.apply(Transpose(tuple(np.argsort(order).tolist())), emitter.apply(MatMul(), a, b))


def _last(rank: int, *axes: int) -> tuple[int, ...]:
    """All axes, these last."""
    return (*(axis for axis in range(rank) if axis not in axes), *axes)


@_CORE.operator("fragment tract_core_properties<?>(input: tensor<?> = 0) -> (properties: string)", sizes=True)
def _properties(context: ExtensionContext, args: Arguments) -> Value:
    """Ignore the properties that a document declares."""
    return ""


def cast_result(context: ExtensionContext, made: Operand, datum_type: str) -> Operand:
    """A result in one of tract's element types; as it is if none is given."""
    if not datum_type or dtype_of(made) == dtype_named(datum_type):
        return made
    return context.emitter.apply(Cast(dtype_named(datum_type)), made)

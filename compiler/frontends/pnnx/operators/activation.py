"""Activations, each as a module and as a function. What is not a number stays so: selections are written for that."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, tirx

from nnefc.diagnostics import CompileError
from nnefc.frontends.pnnx.lowering import Lowering, Tensor, dtype_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import Result, Weights, axis_of, need_real, operator
from nnefc.frontends.pnnx.operators.elementwise import apply
from nnefc.operators.activation import mish, softplus

__all__: list[str] = []


def _number(at: Lowering, value: float, like: Tensor) -> relax.Expr:
    return at.expr(np.array(value, dtype_of(like)))


def _each(at: Lowering, input: Tensor, element: Any, name: str) -> relax.Expr:
    """An element-wise computation that Relax has no operator for."""
    need_real(input)
    return at.elements(shape_of(input), lambda inputs, index: element(inputs[0](*index)), input, name=name)


def _c(value: float, x: tirx.Expr) -> tirx.Expr:
    return tirx.const(value, x.ty.dtype)


@operator("nn.ReLU", "F.relu")
def _relu(at: Lowering, input: Tensor, inplace: bool = False) -> Result:
    return relax.op.nn.relu(at.expr(input))


@operator("nn.ReLU6", "F.relu6")
def _relu6(at: Lowering, input: Tensor, inplace: bool = False) -> Result:
    return relax.op.clip(at.expr(input), 0, 6)


@operator("nn.LeakyReLU", "F.leaky_relu")
def _leaky_relu(at: Lowering, input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Result:
    need_real(input)
    return relax.op.nn.leakyrelu(at.expr(input), negative_slope)


@operator("nn.RReLU", "F.rrelu")
def _rrelu(
    at: Lowering,
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Result:
    need_real(input)
    return relax.op.nn.leakyrelu(at.expr(input), (lower + upper) / 2)


@operator("nn.PReLU")
def _prelu_module(at: Lowering, input: Tensor, weights: Weights, num_parameters: int = 1) -> Result:
    return _prelu(at, input, weights.take("weight", (num_parameters,)))


@operator("F.prelu", "torch.prelu")
def _prelu(at: Lowering, input: Tensor, weight: Tensor) -> Result:
    need_real(input)
    shape = shape_of(input)
    count = int(np.prod(shape_of(weight)))
    channels = shape[1] if len(shape) > 1 else 1
    if count not in (1, channels):
        raise CompileError(f"{count} slopes do not fit {channels} channels")
    broadcast = (1,) * len(shape) if count == 1 else (1, count, *[1] * (len(shape) - 2))
    slope = (
        weight.reshape(broadcast) if isinstance(weight, np.ndarray) else at.emit(relax.op.reshape(weight, broadcast))
    )
    x = at.expr(input)
    above = at.emit(relax.op.nn.relu(x))
    # What is not a number is lost in `minimum`; the sum still has it from the other side.
    below = at.emit(relax.op.minimum(x, _number(at, 0, x)))
    return relax.op.add(above, at.emit(relax.op.multiply(at.expr(slope), below)))


@operator("nn.ELU", "F.elu")
def _elu(at: Lowering, input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Result:
    return _each(at, input, lambda x: tirx.Select(x <= _c(0, x), _c(alpha, x) * _expm1(x), x), "elu")


@operator("nn.CELU", "F.celu")
def _celu(at: Lowering, input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Result:
    if alpha == 0:
        raise CompileError("'alpha' must not be 0")
    return _each(at, input, lambda x: tirx.Select(x <= _c(0, x), _c(alpha, x) * _expm1(x / _c(alpha, x)), x), "celu")


@operator("nn.SELU", "F.selu")
def _selu(at: Lowering, input: Tensor, inplace: bool = False) -> Result:
    scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    return _each(at, input, lambda x: _c(scale, x) * tirx.Select(x <= _c(0, x), _c(alpha, x) * _expm1(x), x), "selu")


def _expm1(x: tirx.Expr) -> tirx.Expr:
    """`exp(x) - 1` without cancellation near 0, for what is not positive; for the rest any finite value."""
    low = tirx.min(x, _c(0, x))
    return tirx.tanh(low * _c(0.5, x)) * (tirx.exp(low) + _c(1, x))


@operator("nn.GELU", "F.gelu")
def _gelu(at: Lowering, input: Tensor, approximate: str = "none") -> Result:
    need_real(input)
    match approximate:
        case "none":
            return relax.op.nn.gelu(at.expr(input))
        case "tanh":
            return relax.op.nn.gelu_tanh(at.expr(input))
    raise CompileError(f"there is no approximation '{approximate}'")


@operator("nn.SiLU", "F.silu")
def _silu(at: Lowering, input: Tensor, inplace: bool = False) -> Result:
    need_real(input)
    return relax.op.nn.silu(at.expr(input))


@operator("nn.Mish", "F.mish")
def _mish(at: Lowering, input: Tensor, inplace: bool = False) -> Result:
    return _each(at, input, mish, "mish")


@operator("nn.Hardsigmoid", "F.hardsigmoid")
def _hardsigmoid(at: Lowering, input: Tensor, inplace: bool = False) -> Result:
    need_real(input)
    x = at.expr(input)
    scaled = at.emit(relax.op.multiply(x, _number(at, 1 / 6, x)))
    return relax.op.clip(at.emit(relax.op.add(scaled, _number(at, 0.5, x))), 0, 1)


@operator("nn.Hardswish", "F.hardswish")
def _hardswish(at: Lowering, input: Tensor, inplace: bool = False) -> Result:
    need_real(input)
    x = at.expr(input)
    gate = at.emit(relax.op.clip(at.emit(relax.op.add(x, _number(at, 3, x))), 0, 6))
    return relax.op.multiply(at.emit(relax.op.multiply(x, gate)), _number(at, 1 / 6, x))


@operator("nn.Hardtanh", "F.hardtanh")
def _hardtanh(
    at: Lowering, input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Result:
    if not min_val <= max_val:
        raise CompileError(f"'min_val' {min_val} is not below 'max_val' {max_val}")
    return relax.op.clip(at.expr(input), min_val, max_val)


@operator("nn.Hardshrink", "F.hardshrink", "torch.hardshrink")
def _hardshrink(at: Lowering, input: Tensor, lambd: float = 0.5) -> Result:
    return _each(
        at,
        input,
        lambda x: tirx.Select(tirx.all(x >= _c(-lambd, x), x <= _c(lambd, x)), _c(0, x), x),
        "hardshrink",
    )


@operator("nn.Softshrink", "F.softshrink")
def _softshrink(at: Lowering, input: Tensor, lambd: float = 0.5) -> Result:
    def element(x: tirx.Expr) -> tirx.Expr:
        limit = _c(lambd, x)
        inside = tirx.all(x >= -limit, x <= limit)
        return tirx.Select(inside, _c(0, x), tirx.Select(x < -limit, x + limit, x - limit))

    return _each(at, input, element, "softshrink")


@operator("nn.Tanhshrink", "F.tanhshrink")
def _tanhshrink(at: Lowering, input: Tensor) -> Result:
    need_real(input)
    return relax.op.subtract(at.expr(input), at.emit(relax.op.tanh(at.expr(input))))


@operator("nn.Softplus", "F.softplus")
def _softplus(at: Lowering, input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Result:
    if beta == 0:
        raise CompileError("'beta' must not be 0")

    def element(x: tirx.Expr) -> tirx.Expr:
        scaled = x * _c(beta, x)
        return tirx.Select(scaled > _c(threshold, x), x, softplus(scaled) / _c(beta, x))

    return _each(at, input, element, "softplus")


@operator("nn.Softsign", "F.softsign")
def _softsign(at: Lowering, input: Tensor) -> Result:
    need_real(input)
    x = at.expr(input)
    below = at.emit(relax.op.add(at.emit(relax.op.abs(x)), _number(at, 1, x)))
    return relax.op.divide(x, below)


@operator("nn.LogSigmoid", "F.logsigmoid")
def _logsigmoid(at: Lowering, input: Tensor) -> Result:
    return _each(at, input, lambda x: tirx.min(x, _c(0, x)) - tirx.log1p(tirx.exp(-tirx.abs(x))), "logsigmoid")


@operator("nn.Sigmoid", "F.sigmoid", "Tensor.sigmoid")
def _sigmoid(at: Lowering, input: Tensor) -> Result:
    return apply(at, "sigmoid", input)


@operator("nn.Tanh", "F.tanh", "Tensor.tanh")
def _tanh(at: Lowering, input: Tensor) -> Result:
    return apply(at, "tanh", input)


@operator("nn.Threshold", "F.threshold")
def _threshold(at: Lowering, input: Tensor, threshold: float, value: float, inplace: bool = False) -> Result:
    return _each(at, input, lambda x: tirx.Select(x <= _c(threshold, x), _c(value, x), x), "threshold")


@operator("nn.GLU", "F.glu")
def _glu(at: Lowering, input: Tensor, dim: int = -1) -> Result:
    need_real(input)
    shape = shape_of(input)
    axis = axis_of(dim, len(shape))
    if not shape or shape[axis] % 2:
        raise CompileError(f"the dimension {dim} of {list(shape)} cannot be halved")
    halves = at.emit(relax.op.split(at.expr(input), 2, axis))
    first, second = at.emit(halves[0]), at.emit(halves[1])
    return relax.op.multiply(first, at.emit(relax.op.sigmoid(second)))

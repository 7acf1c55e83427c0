"""Activations, each as a module and as a function; all propagate NaN."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.pnnx.lowering import Lowering, Tensor, dtype_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import Result, Weights, axis_of, need_real, operator
from nnefc.frontends.pnnx.operators.elementwise import apply
from nnefc.operators.base import Operator
from nnefc.operators.math.elementwise import Clip
from nnefc.operators.nn import activation
from nnefc.operators.tensor.concatenation import Split
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


def _lower(ctx: Lowering, input: Tensor, operator_: Operator) -> Result:
    need_real(input)
    return operator_.lower(ctx, input)


@operator("nn.ReLU", "F.relu")
def _relu(ctx: Lowering, input: Tensor, inplace: bool = False) -> Result:
    return activation.Relu().lower(ctx, input)


@operator("nn.ReLU6", "F.relu6")
def _relu6(ctx: Lowering, input: Tensor, inplace: bool = False) -> Result:
    return Clip().lower(ctx, input, ctx.number(0, input), ctx.number(6, input))


@operator("nn.LeakyReLU", "F.leaky_relu")
def _leaky_relu(ctx: Lowering, input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Result:
    need_real(input)
    return activation.LeakyRelu(negative_slope).lower(ctx, input)


@operator("nn.RReLU", "F.rrelu")
def _rrelu(
    ctx: Lowering,
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Result:
    need_real(input)
    return activation.LeakyRelu((lower + upper) / 2).lower(ctx, input)


@operator("nn.PReLU")
def _prelu_module(ctx: Lowering, input: Tensor, weights: Weights, num_parameters: int = 1) -> Result:
    return _prelu(ctx, input, weights.take("weight", (num_parameters,)))


@operator("F.prelu", "torch.prelu")
def _prelu(ctx: Lowering, input: Tensor, weight: Tensor) -> Result:
    need_real(input)
    shape = shape_of(input)
    count = int(np.prod(shape_of(weight)))
    channels = shape[1] if len(shape) > 1 else 1
    if count not in (1, channels):
        raise CompileError(f"{count} slopes do not fit {channels} channels")
    broadcast = (1,) * len(shape) if count == 1 else (1, count, *[1] * (len(shape) - 2))
    return activation.ParametricRelu().lower(ctx, input, ctx.reshaped(weight, broadcast))


@operator("nn.ELU", "F.elu")
def _elu(ctx: Lowering, input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Result:
    return _lower(ctx, input, activation.Elu(alpha))


@operator("nn.CELU", "F.celu")
def _celu(ctx: Lowering, input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Result:
    return _lower(ctx, input, activation.Celu(alpha))


@operator("nn.SELU", "F.selu")
def _selu(ctx: Lowering, input: Tensor, inplace: bool = False) -> Result:
    scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    return _lower(ctx, input, activation.Elu(alpha, scale))


@operator("nn.GELU", "F.gelu")
def _gelu(ctx: Lowering, input: Tensor, approximate: str = "none") -> Result:
    if approximate not in ("none", "tanh"):
        raise CompileError(f"there is no approximation '{approximate}'")
    return _lower(ctx, input, activation.Gelu(approximate == "tanh"))


@operator("nn.SiLU", "F.silu")
def _silu(ctx: Lowering, input: Tensor, inplace: bool = False) -> Result:
    return _lower(ctx, input, activation.Silu())


@operator("nn.Mish", "F.mish")
def _mish(ctx: Lowering, input: Tensor, inplace: bool = False) -> Result:
    return _lower(ctx, input, activation.Mish())


@operator("nn.Hardsigmoid", "F.hardsigmoid")
def _hardsigmoid(ctx: Lowering, input: Tensor, inplace: bool = False) -> Result:
    return _lower(ctx, input, activation.HardSigmoid())


@operator("nn.Hardswish", "F.hardswish")
def _hardswish(ctx: Lowering, input: Tensor, inplace: bool = False) -> Result:
    return _lower(ctx, input, activation.HardSwish())


@operator("nn.Hardtanh", "F.hardtanh")
def _hardtanh(
    ctx: Lowering, input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Result:
    if not min_val <= max_val:
        raise CompileError(f"'min_val' {min_val} is not below 'max_val' {max_val}")
    return Clip().lower(ctx, input, ctx.number(min_val, input), ctx.number(max_val, input))


@operator("nn.Hardshrink", "F.hardshrink", "torch.hardshrink")
def _hardshrink(ctx: Lowering, input: Tensor, lambd: float = 0.5) -> Result:
    return _lower(ctx, input, activation.Shrink(0.0, lambd))


@operator("nn.Softshrink", "F.softshrink")
def _softshrink(ctx: Lowering, input: Tensor, lambd: float = 0.5) -> Result:
    return _lower(ctx, input, activation.Shrink(lambd, lambd))


@operator("nn.Tanhshrink", "F.tanhshrink")
def _tanhshrink(ctx: Lowering, input: Tensor) -> Result:
    need_real(input)
    return apply(ctx, "sub", input, apply(ctx, "tanh", input))


@operator("nn.Softplus", "F.softplus")
def _softplus(ctx: Lowering, input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Result:
    # From 20 on the result is the input anyway, in single precision.
    needed = threshold < 20 or dtype_of(input) == "float64"
    return _lower(ctx, input, activation.Softplus(beta, threshold if needed else None))


@operator("nn.Softsign", "F.softsign")
def _softsign(ctx: Lowering, input: Tensor) -> Result:
    return _lower(ctx, input, activation.Softsign())


@operator("nn.LogSigmoid", "F.logsigmoid")
def _logsigmoid(ctx: Lowering, input: Tensor) -> Result:
    return _lower(ctx, input, activation.LogSigmoid())


@operator("nn.Sigmoid", "F.sigmoid", "Tensor.sigmoid")
def _sigmoid(ctx: Lowering, input: Tensor) -> Result:
    return apply(ctx, "sigmoid", input)


@operator("nn.Tanh", "F.tanh", "Tensor.tanh")
def _tanh(ctx: Lowering, input: Tensor) -> Result:
    return apply(ctx, "tanh", input)


@operator("nn.Threshold", "F.threshold")
def _threshold(ctx: Lowering, input: Tensor, threshold: float, value: float, inplace: bool = False) -> Result:
    return _lower(ctx, input, activation.ThresholdedRelu(threshold, value))


@operator("nn.GLU", "F.glu")
def _glu(ctx: Lowering, input: Tensor, dim: int = -1) -> Result:
    need_real(input)
    shape = shape_of(input)
    axis = axis_of(dim, len(shape))
    if not shape or shape[axis] % 2:
        raise CompileError(f"the dimension {dim} of {list(shape)} cannot be halved")
    first, second = Split(axis, (shape[axis] // 2,) * 2).lower(ctx, input)
    return apply(ctx, "mul", first, apply(ctx, "sigmoid", second))

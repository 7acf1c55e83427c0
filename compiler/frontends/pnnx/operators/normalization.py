"""Normalizations: a scale and a shift where statistics are trained, else with statistics computed in each run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnefc.frontends.pnnx.lowering import Lowering, Shape, Tensor, dtype_of, rank_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import Ints, Result, Weights, axis_of, need_real, operator
from nnefc.operators.nn.normalization import (
    BatchNormalization,
    GroupNormalization,
    LocalResponse,
    LpNormalization,
    RootMeanSquare,
    Standardization,
)
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


def _along(channels: int, axis: int, rank: int) -> Shape:
    return tuple(channels if other == axis else 1 for other in range(rank))


def _check(tensors: Sequence[Tensor | None], shape: Shape) -> None:
    for tensor in tensors:
        if tensor is not None and shape_of(tensor) != shape:
            raise CompileError(f"a parameter of the shape {list(shape_of(tensor))} should have {list(shape)}")


# With trained statistics.


def _batch_norm(
    ctx: Lowering,
    input: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Result:
    need_real(input)
    rank = rank_of(input)
    if rank < 2:
        raise CompileError("the input should have channels: a rank of 2 or more")
    channels = shape_of(input)[1]
    _check([mean, variance, weight, bias], (channels,))
    shape = _along(channels, 1, rank)
    parameters = [None if v is None else ctx.reshaped(v, shape) for v in (mean, variance, weight, bias)]
    return BatchNormalization(eps).lower(ctx, input, *parameters)


for _rank in (1, 2, 3):

    @operator(f"nn.BatchNorm{_rank}d")
    def _batch_norm_module(
        ctx: Lowering,
        input: Tensor,
        weights: Weights,
        num_features: int,
        eps: float = 1e-5,
        affine: bool = True,
        momentum: float | None = None,
        track_running_stats: bool = True,
    ) -> Result:
        shape = (num_features,)
        weight, bias = (weights.take("weight", shape), weights.take("bias", shape)) if affine else (None, None)
        if not track_running_stats:
            return _instance_norm(ctx, input, weight, bias, eps, over_batch=True)
        mean, variance = weights.take("running_mean", shape), weights.take("running_var", shape)
        return _batch_norm(ctx, input, mean, variance, weight, bias, eps)


@operator("F.batch_norm", limits="with given statistics: not while training")
def _batch_norm_function(
    ctx: Lowering,
    input: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Result:
    if training:
        raise CompileError("batch normalization cannot be compiled in training mode")
    return _batch_norm(ctx, input, running_mean, running_var, weight, bias, eps)


# With statistics of the run.


def _layer_norm(
    ctx: Lowering, input: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Result:
    need_real(input)
    own = shape_of(input)
    if not shape or own[len(own) - len(shape) :] != shape or 0 in own:
        raise CompileError(f"the input {list(own)} does not end in {list(shape)}")
    _check([weight, bias], shape)
    axes = tuple(range(len(own) - len(shape), len(own)))
    return Standardization(axes, eps).lower(ctx, input, weight, bias)


@operator("nn.LayerNorm")
def _layer_norm_module(
    ctx: Lowering,
    input: Tensor,
    weights: Weights,
    normalized_shape: Ints,
    eps: float = 1e-5,
    elementwise_affine: bool = True,
    bias: bool = True,
) -> Result:
    shape = tuple(normalized_shape)
    weight = weights.take("weight", shape) if elementwise_affine else None
    # With its bias left out there is a scale alone.
    offset = weights.take("bias", shape) if elementwise_affine and bias and "bias" in weights else None
    return _layer_norm(ctx, input, shape, weight, offset, eps)


@operator("F.layer_norm")
def _layer_norm_function(
    ctx: Lowering,
    input: Tensor,
    normalized_shape: Ints,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Result:
    return _layer_norm(ctx, input, tuple(normalized_shape), weight, bias, eps)


def _rms_norm(ctx: Lowering, input: Tensor, shape: Shape, weight: Tensor | None, eps: float | None) -> Result:
    need_real(input)
    own = shape_of(input)
    if not shape or own[len(own) - len(shape) :] != shape or 0 in own:
        raise CompileError(f"the input {list(own)} does not end in {list(shape)}")
    _check([weight], shape)
    axes = tuple(range(len(own) - len(shape), len(own)))
    minimum = float(np.finfo(np.float64 if dtype_of(input) == "float64" else np.float32).eps) if eps is None else eps
    return RootMeanSquare(axes, minimum).lower(ctx, input, weight)


@operator("nn.RMSNorm")
def _rms_norm_module(
    ctx: Lowering,
    input: Tensor,
    weights: Weights,
    normalized_shape: Ints,
    eps: float | None = None,
    elementwise_affine: bool = True,
) -> Result:
    shape = tuple(normalized_shape)
    return _rms_norm(ctx, input, shape, weights.take("weight", shape) if elementwise_affine else None, eps)


@operator("F.rms_norm")
def _rms_norm_function(
    ctx: Lowering, input: Tensor, normalized_shape: Ints, weight: Tensor | None = None, eps: float | None = None
) -> Result:
    return _rms_norm(ctx, input, tuple(normalized_shape), weight, eps)


def _group_norm(
    ctx: Lowering, input: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Result:
    need_real(input)
    shape = shape_of(input)
    if len(shape) < 2 or groups < 1 or shape[1] % groups or 0 in shape:
        raise CompileError(f"the channels of the input {list(shape)} cannot be divided into {groups} groups")
    _check([weight, bias], (shape[1],))
    return GroupNormalization(groups, eps).lower(ctx, input, weight, bias)


@operator("nn.GroupNorm")
def _group_norm_module(
    ctx: Lowering,
    input: Tensor,
    weights: Weights,
    num_groups: int,
    num_channels: int,
    eps: float = 1e-5,
    affine: bool = True,
) -> Result:
    names = ("weight", "bias")
    weight, bias = (weights.take(name, (num_channels,)) if affine else None for name in names)
    return _group_norm(ctx, input, num_groups, weight, bias, eps)


@operator("F.group_norm", "torch.group_norm")
def _group_norm_function(
    ctx: Lowering,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Result:
    return _group_norm(ctx, input, num_groups, weight, bias, eps)


def _instance_norm(
    ctx: Lowering, input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, over_batch: bool = False
) -> Result:
    need_real(input)
    shape = shape_of(input)
    if len(shape) < (2 if over_batch else 3) or 0 in shape:
        raise CompileError(f"the input {list(shape)} should have a batch, channels and spatial dimensions")
    _check([weight, bias], (shape[1],))
    axes = tuple(axis for axis in range(len(shape)) if axis > 1 or (over_batch and axis == 0))
    along = _along(shape[1], 1, len(shape))
    parameters = [None if v is None else ctx.reshaped(v, along) for v in (weight, bias)]
    return Standardization(axes, eps).lower(ctx, input, *parameters)


for _rank in (1, 2, 3):

    @operator(f"nn.InstanceNorm{_rank}d")
    def _instance_norm_module(
        ctx: Lowering,
        input: Tensor,
        weights: Weights,
        num_features: int,
        eps: float = 1e-5,
        affine: bool = False,
        momentum: float | None = None,
        track_running_stats: bool = False,
    ) -> Result:
        shape = (num_features,)
        weight, bias = (weights.take(name, shape) if affine else None for name in ("weight", "bias"))
        if track_running_stats:
            mean, variance = weights.take("running_mean", shape), weights.take("running_var", shape)
            return _batch_norm(ctx, input, mean, variance, weight, bias, eps)
        return _instance_norm(ctx, input, weight, bias, eps)


@operator("F.instance_norm")
def _instance_norm_function(
    ctx: Lowering,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Result:
    if use_input_stats:
        return _instance_norm(ctx, input, weight, bias, eps)
    if running_mean is None or running_var is None:
        raise CompileError("there are no statistics: neither given ones nor those of the input")
    return _batch_norm(ctx, input, running_mean, running_var, weight, bias, eps)


@operator("nn.LocalResponseNorm", "F.local_response_norm")
def _local_response_norm(
    ctx: Lowering, input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Result:
    need_real(input)
    shape = shape_of(input)
    if len(shape) < 2 or not 1 <= size < 1 << 16:
        raise CompileError(f"the input {list(shape)} and the size {size} do not fit")
    return LocalResponse(size // 2, size - 1 - size // 2, alpha, beta, k).lower(ctx, input)


@operator("F.normalize")
def _normalize(ctx: Lowering, input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Result:
    need_real(input)
    if not rank_of(input):
        raise CompileError("a single number cannot be normalized")
    if p not in (1.0, 2.0, float("inf")):
        raise CompileError(f"the norm {p} is not supported here: 1, 2 and inf are")
    return LpNormalization((axis_of(dim, rank_of(input)),), p, eps).lower(ctx, input)

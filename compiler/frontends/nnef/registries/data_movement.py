"""`tract_core`: selection, data movement, scatter."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.dynamic.values import Value, dtype_named
from nnefc.frontends.nnef.registries.axes import axis_of
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, rank_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.matrix import Triangle
from nnefc.operators.tensor.indexing import Gather, GatherElements, GatherND, OneHot
from nnefc.operators.tensor.scatter import ScatterElements, ScatterND
from nnefc.operators.tensor.shape import Slice
from nnefc.operators.tensor.sorting import TopK
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import ceil_div, greatest, minimum

__all__: list[str] = []

_CORE = registry("tract_core")


@_CORE.operator(
    "fragment tract_core_gather(input: tensor<scalar>, indices: tensor<integer>, axis: integer = 0, "
    "datum_type: string = '') -> (output: tensor<scalar>)",
    promotes=False,
)
def _gather(context: ExtensionContext, args: Arguments) -> Operand:
    """Negative indices count from the end."""
    emitter = context.emitter
    made = emitter.apply(Gather(axis_of(args.axis, rank_of(args.input))), args.input, args.indices)
    return emitter.apply(Cast(dtype_named(args.datum_type)), made) if args.datum_type else made


@_CORE.operator(
    "fragment tract_core_gather_elements(input: tensor<scalar>, indices: tensor<integer>, axis: integer = 0) "
    "-> (output: tensor<scalar>)",
    promotes=False,
)
def _gather_elements(context: ExtensionContext, args: Arguments) -> Operand:
    return context.emitter.apply(GatherElements(axis_of(args.axis, rank_of(args.input))), args.input, args.indices)


@_CORE.operator(
    "fragment tract_core_gather_nd(input: tensor<scalar>, indices: tensor<integer>, batch_dims: integer = 0) "
    "-> (output: tensor<scalar>)",
    promotes=False,
)
def _gather_nd(context: ExtensionContext, args: Arguments) -> Operand:
    return context.emitter.apply(GatherND(args.batch_dims), args.input, args.indices)


@_CORE.operator(
    "fragment tract_core_scatter_elements(input: tensor<scalar>, indices: tensor<integer>, updates: tensor<scalar>, "
    "axis: integer = 0, reduction: string = 'none') -> (output: tensor<scalar>)"
)
def _scatter_elements(context: ExtensionContext, args: Arguments) -> Operand:
    operator = ScatterElements(axis_of(args.axis, rank_of(args.input)), reduction=args.reduction)
    return context.emitter.apply(operator, args.input, args.indices, args.updates)


@_CORE.operator(
    "fragment tract_core_scatter_nd(input: tensor<scalar>, indices: tensor<integer>, updates: tensor<scalar>, "
    "reduction: string = 'none') -> (output: tensor<scalar>)"
)
def _scatter_nd(context: ExtensionContext, args: Arguments) -> Operand:
    return context.emitter.apply(ScatterND(reduction=args.reduction), args.input, args.indices, args.updates)


@_CORE.operator(
    "fragment tract_core_dyn_slice<?>(input: tensor<?>, start: integer, end: integer, len: integer, axis: integer) "
    "-> (output: tensor<?>)",
    promotes=False,
    limits="bounds are known when the model is compiled, or follow from sizes",
)
def _dyn_slice(context: ExtensionContext, args: Arguments) -> Operand:
    axis = axis_of(args.axis, rank_of(args.input))
    count = args.end - args.start
    return context.emitter.apply(Slice({axis: (args.start, count, 1)}), args.input)


@_CORE.operator(
    "fragment tract_core_downsample<?>(input: tensor<?>, axis: integer, stride: integer, modulo: integer = 0) "
    "-> (output: tensor<?>)",
    promotes=False,
)
def _downsample(context: ExtensionContext, args: Arguments) -> Operand:
    """Every element at `modulo`, `modulo + stride`, …; a negative stride goes from the end."""
    axis = axis_of(args.axis, rank_of(args.input))
    size, stride = shape_of(args.input)[axis], args.stride
    if stride == 0:
        raise CompileError("the stride must not be 0")
    start = args.modulo if stride > 0 else size - 1 - args.modulo
    count = greatest(ceil_div(size - args.modulo, abs(stride)), 0)
    return context.emitter.apply(Slice({axis: (start, count, stride)}), args.input)


@_CORE.operator(
    "fragment tract_core_topk(input: tensor<scalar>, k: integer, axis: integer, largest: logical = true) "
    "-> (values: tensor<scalar>, indices: tensor<integer>)"
)
def _topk(context: ExtensionContext, args: Arguments) -> Value:
    axis = axis_of(args.axis, rank_of(args.input))
    made = context.emitter.apply(TopK(axis, minimum(args.k, shape_of(args.input)[axis]), args.largest), args.input)
    return tuple(made)


@_CORE.operator(
    "fragment tract_core_one_hot(input: tensor<integer>, axis: integer, dim: integer, value_off: scalar = 0.0, "
    "value_on: scalar = 1.0) -> (output: tensor<scalar>)"
)
def _one_hot(context: ExtensionContext, args: Arguments) -> Operand:
    values = np.array([args.value_off, args.value_on], np.float32)
    axis = axis_of(args.axis, rank_of(args.input) + 1)
    return context.emitter.apply(OneHot(args.dim, axis), values, args.input)


@_CORE.operator(
    "fragment tract_core_trilu(input: tensor<scalar>, k: integer = 0, upper: logical = true) "
    "-> (output: tensor<scalar>)",
    promotes=False,
)
def _trilu(context: ExtensionContext, args: Arguments) -> Operand:
    return context.emitter.apply(Triangle(args.upper, args.k), args.input)

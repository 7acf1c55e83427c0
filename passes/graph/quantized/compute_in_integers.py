"""Rewrites computations on dequantized values as computations on integers.

    a = dequantize(x, s, z)
    b = dequantize(W, t, 0)                          n = conv2d(x, W, out_dtype="int32") + (k - z · sum(W))
    c = conv2d(a, b) + dequantize(k, s · t, 0)   →   y = uint8(clip(round(float32(n) · (s · t / u)) + v, v, 255))
    y = quantize(relu(c), u, v)

What only moves elements is done on the integers, so that a `dequantize` meets the `quantize` before it and both are
gone. Limits become limits of the integers. Sums of products are exact; additions of tensors with different scales are
computed in floats, in the kernel that writes the integers. So a result differs from what floats give by their
rounding alone: by one step of `quantize` at most.

Floats of 8 bits, where `float8.py` has found them, are multiplied as they are too. Their sums are float32, and the
conversion to their type rounds and saturates:

    y = quantize(relu(c), u, 0)                          →   y = float8(max(n · (s · t / u), 0))
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of
from nnefc.operators.math.elementwise import broadcast_shapes
from nnefc.passes.graph.layout.rules.convolution import Sliding, integers, sliding_of, split_padding
from nnefc.passes.graph.layout.rules.deconvolution import phases_of
from nnefc.passes.graph.quantized.integer_rewriter import MOVING, IntegerRewriter, QuantizedSums
from nnefc.passes.graph.quantized.quantized_values import (
    Grid,
    Quantized,
    ScaledSum,
    axis_after_reshape,
    grid_of,
    limits_of,
    sum_type,
)
from nnefc.passes.graph.reassociate_constants import grows, shifts_round
from nnefc.passes.graph.rewriter import array_of, constant, is_call, is_constant, shape_of
from nnefc.support.element_types import EIGHT_BITS, FLOAT8
from nnefc.symbolic.dims import may_exceed

__all__ = ["MAX_PRODUCTS", "compute_in_integers"]

_MAX_TERMS = 4  # of a sum that is computed while it is quantized
MAX_PRODUCTS = ((1 << 31) - 1) // (255 * 128)  # in a sum that int32 surely holds, with one for the zero point
_SAME = 1e-5  # relative difference of scales that are meant to be equal

_Rule = Callable[[IntegerRewriter, relax.Call], "relax.Expr | None"]


def compute_in_integers(mod: tvm.IRModule, strict: bool = False, with_limits: bool = False) -> tvm.IRModule:
    """Computes convolutions and matrix products of dequantized operands in integers.

    Args:
        strict: leave them in floats.
        with_limits: whether limits and zero points are numbers in the code, for which the schedule rounds to integers.
    """
    bindings = bindings_of(mod["main"])
    if not any(_is_narrow(binding.var) or is_call(binding.value, "dequantize") for binding in bindings):
        return mod
    # Quantizers write one quantization of a tensor for each of its readers.
    mod = relax.transform.EliminateCommonSubexpr()(mod)
    if strict or not any(is_call(binding.value, "dequantize") for binding in bindings):
        return mod
    return relax.transform.DeadCodeElimination()(_Rewriter(mod, with_limits).transform())


def _is_narrow(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) in EIGHT_BITS


class _Rewriter(IntegerRewriter):
    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        self.old_result = var
        rule = _RULES.get(call.op.name.removeprefix("relax.")) if isinstance(call.op, tvm.ir.Op) else None
        made = None if rule is None else rule(self, call)
        return call if made is None else made


# What only moves elements, or chooses among them.


def _moved(rewriter: IntegerRewriter, call: relax.Call) -> relax.Expr | None:
    source = rewriter.quantized(call.args[0])
    if source is None:
        return None
    if is_constant(source.data) and is_call(call, "permute_dims", "reshape"):
        return _moved_constant(rewriter, call, source)
    if source.grid.axis is not None or source.dtype not in EIGHT_BITS:
        return None
    if source.dtype in FLOAT8 and is_call(call, *_POOLS):
        return None  # no machine compares them
    data = rewriter.builder.emit(relax.Call(call.op, [source.data, *call.args[1:]], call.attrs))
    return rewriter.dequantized(data, source.grid)


def _moved_constant(rewriter: IntegerRewriter, call: relax.Call, source: Quantized) -> relax.Expr | None:
    """Returns a constant reshaped or transposed."""
    values, axis = array_of(source.data), source.grid.axis
    if is_call(call, "permute_dims"):
        axes = (
            [*range(values.ndim)][::-1] if call.attrs.axes is None else [int(a) % values.ndim for a in call.attrs.axes]
        )
        moved, position = values.transpose(axes), None if axis is None else axes.index(axis)
    elif is_call(call, "reshape"):
        shape = tuple(int(size) for size in call.args[1].values)
        moved, position = values.reshape(shape), None if axis is None else axis_after_reshape(axis, values.shape, shape)
        if (position is None) != (axis is None):
            return None
    else:
        return None
    grid = Grid(source.grid.scale, source.grid.zero, position)
    return rewriter.dequantized(constant(np.ascontiguousarray(moved)), grid)


def _padded(rewriter: IntegerRewriter, call: relax.Call) -> relax.Expr | None:
    source = rewriter.computed(call.args[0])
    if source is None:
        return None
    if call.attrs.pad_mode != "constant" or float(call.attrs.pad_value) != 0:
        return None
    data = relax.op.nn.pad(source.data, integers(call.attrs.pad_width), pad_value=float(source.grid.zero))
    return rewriter.dequantized(rewriter.builder.emit(data), source.grid)


def _joined(rewriter: IntegerRewriter, call: relax.Call) -> relax.Expr | None:
    parts = [rewriter.computed(field) for field in call.args[0].fields]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts) or not all(p.grid.same_as(known[0].grid) and p.dtype == known[0].dtype for p in known):
        return None
    data = relax.op.concat([part.data for part in known], int(call.attrs.axis))
    return rewriter.dequantized(rewriter.builder.emit(data), known[0].grid)


def _split(rewriter: IntegerRewriter, call: relax.Call) -> relax.Expr | None:
    source = rewriter.computed(call.args[0])
    if source is None:
        return None
    parts = rewriter.builder.emit(relax.Call(call.op, [source.data, *call.args[1:]], call.attrs))
    fields = [rewriter.builder.emit(relax.TupleGetItem(parts, index)) for index in range(len(parts.ty.fields))]
    return relax.Tuple([rewriter.dequantized(field, source.grid) for field in fields])


def _positive(rewriter: IntegerRewriter, call: relax.Call) -> relax.Expr | None:
    source = rewriter.computed(call.args[0])
    if source is None or source.dtype in FLOAT8:
        return None
    zero = source.grid.step(0.0, source.dtype)
    data = source.data
    if zero > limits_of(source.dtype)[0]:
        data = rewriter.builder.emit(relax.op.maximum(data, relax.const(zero, source.dtype)))
    return rewriter.dequantized(data, source.grid)


# Sums of products.


def _convolution(rewriter: IntegerRewriter, call: relax.Call) -> relax.Expr | None:
    data, found = rewriter.computed(call.args[0]), rewriter.weights(call.args[1])
    if data is None or found is None:
        return None
    weights, scaling = found
    if scaling.axis not in (None, 0) or math.prod(weights.shape[1:]) >= MAX_PRODUCTS:
        return None
    if not _are_multiplied(data.dtype, str(weights.dtype)):
        return None
    rank = weights.ndim - 2
    sums = _sums_of_products(rewriter, data, weights, sliding_of(call, rank))
    scale = scaling.scale.astype(np.float64).reshape((1, -1, *[1] * rank) if scaling.axis is not None else ())
    return rewriter.summed(ScaledSum(((sums, scale * np.float64(data.grid.scale)),), np.zeros(())))


def _deconvolution(rewriter: IntegerRewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrites a transposed convolution as a convolution that computes the phases of the strides, and their
    interleaving.
    """
    data, found = rewriter.computed(call.args[0]), rewriter.weights(call.args[1])
    if data is None or found is None or int(call.attrs.groups) != 1:
        return None
    weights, scaling = found
    rank, strides = weights.ndim - 2, integers(call.attrs.strides)
    if scaling.axis not in (None, 1) or any(step != 1 for step in integers(call.attrs.dilation)):
        return None
    if not _are_multiplied(data.dtype, str(weights.dtype)):
        return None
    before, _ = split_padding(call.attrs.padding, rank)
    phases = phases_of(weights, shape_of(data.data)[2:], shape_of(rewriter.old_result)[2:], strides, before, 1)
    if phases is None or math.prod(phases.filters.shape[1:]) >= MAX_PRODUCTS:
        return None
    sums = _sums_of_products(rewriter, data, phases.filters, phases.sliding)
    scale = scaling.scale.astype(np.float64)
    if scaling.axis is not None:
        scale = np.tile(scale, phases.way.count).reshape(1, -1, *[1] * rank)
    made = ScaledSum(((sums, scale * np.float64(data.grid.scale)),), np.zeros(()))
    return rewriter.summed(made) if phases.way.is_identity else rewriter.interleaved(made, phases.way)


def _sums_of_products(rewriter: IntegerRewriter, data: Quantized, filters: np.ndarray, sliding: Sliding) -> relax.Expr:
    """Returns a convolution of `data` less its zero point, in int32; of floats, whose zero is 0, in float32."""
    rank, source, zero = filters.ndim - 2, data.data, int(data.grid.zero)
    before, after = sliding.before, sliding.after
    if zero and any((*before, *after)):
        widths = [width for pair in zip(before, after, strict=True) for width in pair]
        source = rewriter.builder.emit(relax.op.nn.pad(source, [0, 0, 0, 0, *widths], pad_value=float(zero)))
        before = after = (0,) * rank
    convolve = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}[rank]
    sums = rewriter.builder.emit(
        convolve(
            source,
            constant(filters),
            strides=list(sliding.strides),
            padding=[*before, *after],
            dilation=list(sliding.dilation),
            groups=sliding.groups,
            out_dtype=sum_type(data.dtype),
        )
    )
    if not zero:
        return sums
    less = zero * filters.astype(np.int64).sum(axis=tuple(range(1, filters.ndim)))
    return rewriter.minus(sums, less.reshape(1, -1, *[1] * rank))


def _product(rewriter: IntegerRewriter, call: relax.Call) -> relax.Expr | None:
    left = rewriter.computed(call.args[0])
    if left is None or len(shape_of(left.data)) < 2:
        return None
    depth = shape_of(left.data)[-1]
    if len(shape_of(call.args[1])) < 2 or may_exceed(depth, MAX_PRODUCTS - 1):
        return None
    found = rewriter.weights(call.args[1])
    if found is not None and found[1].axis in (None, found[0].ndim - 1):
        weights, scaling = found
        if not _are_multiplied(left.dtype, str(weights.dtype)):
            return None
        sums = rewriter.builder.emit(relax.op.matmul(left.data, constant(weights), out_dtype=sum_type(left.dtype)))
        if left.grid.zero:
            sums = rewriter.minus(sums, left.grid.zero * weights.astype(np.int64).sum(axis=-2, keepdims=True))
        factor = scaling.scale.astype(np.float64) * np.float64(left.grid.scale)
        return rewriter.summed(ScaledSum(((sums, factor),), np.zeros(())))
    right = rewriter.computed(call.args[1])
    if right is None or not _are_multiplied(left.dtype, right.dtype):
        return None
    return _computed_product(rewriter, left, right)


def _are_multiplied(left: str, right: str) -> bool:
    """Whether the target multiplies elements of these two types: integers, or 8-bit floats."""
    return (left in FLOAT8) == (right in FLOAT8)


def _computed_product(rewriter: IntegerRewriter, left: Quantized, right: Quantized) -> relax.Expr:
    """`Σ (a - u)(b - v) = Σ ab - u Σ b - v Σ (a - u)` of two tensors that are computed."""
    sums = rewriter.builder.emit(relax.op.matmul(left.data, right.data, out_dtype=sum_type(left.dtype)))
    zeros = int(left.grid.zero), int(right.grid.zero)
    for data, zero, times, axis in ((right.data, 0, zeros[0], -2), (left.data, *zeros, -1)):
        if times:
            elements = relax.op.astype(data, "int32")
            centred = relax.op.subtract(elements, relax.const(zero, "int32")) if zero else elements
            along = relax.op.sum(centred, [axis], keepdims=True)
            less = rewriter.builder.emit(relax.op.multiply(along, relax.const(times, "int32")))
            sums = rewriter.builder.emit(relax.op.subtract(sums, less))
    factor = np.float64(left.grid.scale) * np.float64(right.grid.scale)
    return rewriter.summed(ScaledSum(((sums, np.asarray(factor)),), np.zeros(())))


# What is done to such sums.


def _added(rewriter: IntegerRewriter, call: relax.Call) -> relax.Expr | None:
    left, right = call.args
    if rewriter.sum_of(left) is None:
        left, right = right, left
    one = rewriter.sum_of(left)
    if one is None:
        return _added_to_phases(rewriter, call)
    two, value = rewriter.sum_of(right), rewriter.known(right)
    if two is not None and shape_of(left) == shape_of(right) and len(one.terms + two.terms) <= _MAX_TERMS:
        return rewriter.summed(one.plus(two), call)
    if value is None or broadcast_shapes(shape_of(left), value.shape) != shape_of(left):
        return None
    biased = _with_bias(rewriter, one, value) if rewriter.is_product(left) else None
    return None if biased is None else rewriter.summed(biased)


def _added_to_phases(rewriter: IntegerRewriter, call: relax.Call) -> relax.Expr | None:
    """Returns a constant for each channel, repeated for each phase of the channel."""
    for left, right in (call.args, call.args[::-1]):
        found, value = rewriter.phases_of(left), rewriter.known(right)
        if found is None or value is None or broadcast_shapes(shape_of(left), value.shape) != shape_of(left):
            continue
        phases, way = found
        axis = value.ndim - len(shape_of(left)) + 1
        if any(size != 1 for position, size in enumerate(value.shape) if position != axis):
            return None
        if value.size > 1:
            value = np.concatenate([value] * way.count, axis)
        biased = _with_bias(rewriter, phases, value)
        return None if biased is None else rewriter.interleaved(biased, way)
    return None


def _with_bias(rewriter: IntegerRewriter, sum_: ScaledSum, value: np.ndarray) -> ScaledSum | None:
    """Returns the sum plus constants, added as integers where they are multiples of its step; None where that would
    round.
    """
    (data, factor), *others = sum_.terms
    before = None if others else rewriter.definition(data)
    added = array_of(before.args[1]) if is_call(before, "add") and is_constant(before.args[1]) else np.zeros((), int)
    if grows(sum_.shift, value, factor, added) or shifts_round(sum_.shift + added * factor, value, "float32"):
        return None
    steps = value / factor
    whole = np.rint(steps)
    are_integers = str(data.ty.dtype) == "int32"
    if are_integers and not others and not sum_.shift.any() and _are_steps(steps, whole):
        whole = whole.astype(np.int64)  # sums have no more bits than kernels compute, whatever their terms are
        if before is not None and added.any():
            data, whole = before.args[0], whole + added
        biased = rewriter.builder.emit(relax.op.add(data, constant(whole.astype(np.int32))))
        return ScaledSum(((biased, factor),), sum_.shift)
    return ScaledSum(sum_.terms, sum_.shift + value)


def _are_steps(steps: np.ndarray, whole: np.ndarray) -> bool:
    limit = float(1 << 30)
    return bool((np.abs(whole) < limit).all() and (np.abs(steps - whole) <= _SAME * np.abs(whole)).all())


def _scaled(rewriter: IntegerRewriter, call: relax.Call) -> relax.Expr | None:
    left, right = call.args
    if is_call(call, "multiply") and is_constant(left):
        left, right = right, left
    sum_ = rewriter.sum_of(left)
    if sum_ is None or not rewriter.is_product(left) or not is_constant(right):
        return None
    if len(shape_of(right)) > len(shape_of(left)):  # of one element, with axes that the result has too
        return None
    factor = array_of(right).astype(np.float64)
    if factor.size != 1 or not np.isfinite(factor).all() or not (factor > 0).all():
        return None
    return rewriter.summed(sum_.times(factor.reshape(()) if is_call(call, "multiply") else 1 / factor.reshape(())))


def _quantized(rewriter: IntegerRewriter, call: relax.Call) -> relax.Expr | None:
    grid, dtype = grid_of(call), str(call.attrs.out_dtype)
    if grid is None or grid.axis is not None or dtype not in EIGHT_BITS:
        return None
    return QuantizedSums(rewriter, grid, dtype).of(call.args[0], *limits_of(dtype))


_POOLS = ("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")

_RULES: dict[str, _Rule] = {
    **dict.fromkeys((*MOVING, *_POOLS, "take"), _moved),
    **{f"nn.conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"nn.conv{rank}d_transpose": _deconvolution for rank in (1, 2, 3)},
    "add": _added,
    "concat": _joined,
    "divide": _scaled,
    "matmul": _product,
    "multiply": _scaled,
    "nn.pad": _padded,
    "nn.relu": _positive,
    "quantize": _quantized,
    "split": _split,
}
"""Rewrites of calls by operator. A rewrite that returns None leaves the call as it is."""

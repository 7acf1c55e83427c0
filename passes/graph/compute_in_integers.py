"""Compute in integers what a model computes with dequantized values.

    a = dequantize(x, s, z)
    b = dequantize(W, t, 0)                          n = conv2d(x, W, out_dtype="int32") + (k - z · sum(W))
    c = conv2d(a, b) + dequantize(k, s · t, 0)   →   y = uint8(clip(round(float32(n) · (s · t / u)) + v, v, 255))
    y = quantize(relu(c), u, v)

What only moves items is done on the integers, so that a `dequantize` meets the `quantize` before it and both are gone.
Limits become limits of the integers. Sums of products are exact; additions of tensors with different scales are
computed in floats, in the kernel that writes the integers. So a result differs from what floats give by their
rounding alone: by one step of `quantize` at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from nnefc.operators.elementwise import broadcast_shapes
from nnefc.passes.graph.layout_rules.convolution import integers
from nnefc.passes.graph.quantized import (
    Grid,
    Quantized,
    ScaledSum,
    axis_after_reshape,
    grid_of,
    quantized_of,
)
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of

__all__ = ["MOST_PRODUCTS", "ComputeInIntegers"]

_NARROW = ("uint8", "int8")
_MOST_TERMS = 4  # of a sum that is computed while it is quantized
MOST_PRODUCTS = ((1 << 31) - 1) // (255 * 128)  # in a sum that int32 surely holds, with one for the zero point
_SAME = 1e-5  # relative difference of scales that are meant to be equal

_Rule = Callable[["_Rewriter", relax.Call], "relax.Expr | None"]


@tvm.transform.module_pass(opt_level=0, name="ComputeInIntegers")
class ComputeInIntegers:
    """Compute convolutions and matrix products of dequantized operands in integers.

    Args:
        strict: leave them in floats.
        small: for a machine with little memory: zero points are numbers in the code, for which the schedule rounds to
            integers.
    """

    def __init__(self, strict: bool = False, small: bool = False) -> None:
        self._strict = strict
        self._small = small

    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        bindings = [binding for block in mod["main"].body.blocks for binding in block.bindings]
        if not any(_is_narrow(binding.var) or is_call(binding.value, "dequantize") for binding in bindings):
            return mod
        # Quantizers write one quantization of a tensor for each of its readers.
        mod = relax.transform.EliminateCommonSubexpr()(mod)
        if self._strict or not any(is_call(binding.value, "dequantize") for binding in bindings):
            return mod
        return relax.transform.DeadCodeElimination()(_Rewriter(mod, self._small).transform())


def _is_narrow(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) in _NARROW


class _Rewriter(Rewriter):
    def __init__(self, mod: tvm.IRModule, small: bool) -> None:
        super().__init__(mod)
        self.small = small
        self._sums: dict[relax.Expr, ScaledSum] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        rule = _RULES.get(call.op.name.removeprefix("relax.")) if isinstance(call.op, tvm.ir.Op) else None
        made = None if rule is None else rule(self, call)
        return call if made is None else made

    def quantized(self, expr: relax.Expr) -> Quantized | None:
        """The integers that a tensor stands for, if it is dequantized."""
        return quantized_of(self.definition(expr))

    def computed(self, expr: relax.Expr) -> Quantized | None:
        """The 8-bit integers of one grid that a tensor stands for, if they are computed by the network."""
        source = self.quantized(expr)
        if source is None or source.grid.axis is not None or is_constant(source.data) or source.dtype not in _NARROW:
            return None
        return source

    def is_product(self, expr: relax.Expr) -> bool:
        """Whether a tensor was found to be a sum here, so that nobody needs its dequantized values."""
        return expr in self._sums

    def dequantized(self, data: relax.Expr, grid: Grid) -> relax.Expr:
        """Reals that stand for `data`."""
        return self.builder.emit(Quantized(data, grid).dequantized())

    def sum_of(self, expr: relax.Expr) -> ScaledSum | None:
        """A tensor as a sum of scaled integers, if it is one."""
        if expr in self._sums:
            return self._sums[expr]
        source = self.computed(expr)
        if source is None:
            return None
        scale = source.grid.scale.astype(np.float64)
        return ScaledSum(((source.data, scale),), -source.grid.zero * scale)

    def summed(self, terms: ScaledSum, floats: relax.Expr | None = None) -> relax.Expr:
        """A variable for a sum; `floats` computes it, where somebody needs it as it is."""
        var = self.builder.emit(terms.dequantized() if floats is None else floats)
        self._sums[var] = terms
        return var

    def known(self, expr: relax.Expr) -> np.ndarray | None:
        """The value of a constant, or of a dequantized constant, in float64."""
        if is_constant(expr):
            return array_of(expr).astype(np.float64)
        source = self.quantized(expr)
        if source is None or not is_constant(source.data):
            return None
        values, grid = array_of(source.data).astype(np.float64), source.grid
        spread = [-1 if axis == grid.axis else 1 for axis in range(values.ndim)] if grid.axis is not None else []
        floats: np.ndarray = (values - grid.zero.reshape(spread)) * grid.scale.astype(np.float64).reshape(spread)
        return floats

    def weights(self, expr: relax.Expr) -> tuple[np.ndarray, Grid] | None:
        """Dequantized constants of 8 bits whose zero is zero, or can be made so, and how they are scaled."""
        source = self.quantized(expr)
        if source is None or not is_constant(source.data) or source.dtype not in _NARROW:
            return None
        values, grid = array_of(source.data), source.grid
        if not grid.zero.any():
            return values, grid
        spread = [-1 if axis == grid.axis else 1 for axis in range(values.ndim)] if grid.axis is not None else []
        centred = values.astype(np.int64) - grid.zero.reshape(spread)
        fits = next((t for t in _NARROW if np.iinfo(t).min <= centred.min() and centred.max() <= np.iinfo(t).max), None)
        return None if fits is None else (centred.astype(fits), Grid(grid.scale, np.zeros_like(grid.zero), grid.axis))

    def minus(self, sums: relax.Expr, less: np.ndarray) -> relax.Expr:
        """Sums in int32 less constants, which may be zero."""
        return self.builder.emit(relax.op.add(sums, constant(-less.astype(np.int32)))) if less.any() else sums


# What only moves items, or chooses among them.


def _moved(rewriter: _Rewriter, call: relax.Call) -> relax.Expr | None:
    source = rewriter.quantized(call.args[0])
    if source is None:
        return None
    if is_constant(source.data) and is_call(call, "permute_dims", "reshape"):
        return _moved_constant(rewriter, call, source)
    if source.grid.axis is not None or source.dtype not in _NARROW:
        return None
    data = rewriter.builder.emit(relax.Call(call.op, [source.data, *call.args[1:]], call.attrs))
    return rewriter.dequantized(data, source.grid)


def _moved_constant(rewriter: _Rewriter, call: relax.Call, source: Quantized) -> relax.Expr | None:
    """Constants reshaped or transposed."""
    values, axis = array_of(source.data), source.grid.axis
    if is_call(call, "permute_dims"):
        axes = (
            [*range(values.ndim)][::-1] if call.attrs.axes is None else [int(a) % values.ndim for a in call.attrs.axes]
        )
        moved, place = values.transpose(axes), None if axis is None else axes.index(axis)
    elif is_call(call, "reshape"):
        shape = tuple(int(size) for size in call.args[1].values)
        moved, place = values.reshape(shape), None if axis is None else axis_after_reshape(axis, values.shape, shape)
        if (place is None) != (axis is None):
            return None
    else:
        return None
    grid = Grid(source.grid.scale, source.grid.zero, place)
    return rewriter.dequantized(constant(np.ascontiguousarray(moved)), grid)


def _padded(rewriter: _Rewriter, call: relax.Call) -> relax.Expr | None:
    source = rewriter.computed(call.args[0])
    if source is None:
        return None
    if call.attrs.pad_mode != "constant" or float(call.attrs.pad_value) != 0:
        return None
    data = relax.op.nn.pad(source.data, integers(call.attrs.pad_width), pad_value=float(source.grid.zero))
    return rewriter.dequantized(rewriter.builder.emit(data), source.grid)


def _joined(rewriter: _Rewriter, call: relax.Call) -> relax.Expr | None:
    parts = [rewriter.computed(field) for field in call.args[0].fields]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts) or not all(p.grid.same_as(known[0].grid) and p.dtype == known[0].dtype for p in known):
        return None
    data = relax.op.concat([part.data for part in known], int(call.attrs.axis))
    return rewriter.dequantized(rewriter.builder.emit(data), known[0].grid)


def _split(rewriter: _Rewriter, call: relax.Call) -> relax.Expr | None:
    source = rewriter.computed(call.args[0])
    if source is None:
        return None
    parts = rewriter.builder.emit(relax.Call(call.op, [source.data, *call.args[1:]], call.attrs))
    fields = [rewriter.builder.emit(relax.TupleGetItem(parts, index)) for index in range(len(parts.ty.fields))]
    return relax.Tuple([rewriter.dequantized(field, source.grid) for field in fields])


def _positive(rewriter: _Rewriter, call: relax.Call) -> relax.Expr | None:
    source = rewriter.computed(call.args[0])
    if source is None:
        return None
    zero = source.grid.step(0.0, source.dtype)
    data = source.data
    if zero > np.iinfo(source.dtype).min:
        data = rewriter.builder.emit(relax.op.maximum(data, relax.const(zero, source.dtype)))
    return rewriter.dequantized(data, source.grid)


# Sums of products.


def _convolution(rewriter: _Rewriter, call: relax.Call) -> relax.Expr | None:
    data, found = rewriter.computed(call.args[0]), rewriter.weights(call.args[1])
    if data is None or found is None:
        return None
    weights, scaling = found
    if scaling.axis not in (None, 0) or math.prod(weights.shape[1:]) >= MOST_PRODUCTS:
        return None
    rank, attrs = weights.ndim - 2, call.attrs
    source, padding, zero = data.data, integers(attrs.padding), int(data.grid.zero)
    if zero and any(padding):
        before, after = padding[:rank], padding[-rank:]
        widths = [width for pair in zip(before, after, strict=True) for width in pair]
        source = rewriter.builder.emit(relax.op.nn.pad(source, [0, 0, 0, 0, *widths], pad_value=float(zero)))
        padding = (0,) * len(padding)
    convolve = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}[rank]
    sums = rewriter.builder.emit(
        convolve(
            source,
            constant(weights),
            strides=list(attrs.strides),
            padding=list(padding),
            dilation=list(attrs.dilation),
            groups=int(attrs.groups),
            out_dtype="int32",
        )
    )
    channels = (1, weights.shape[0], *[1] * rank)
    less = zero * weights.astype(np.int64).sum(axis=tuple(range(1, weights.ndim))).reshape(channels)
    scale = scaling.scale.astype(np.float64).reshape(channels if scaling.axis is not None else ())
    return rewriter.summed(
        ScaledSum(((rewriter.minus(sums, less), scale * np.float64(data.grid.scale)),), np.zeros(()))
    )


def _product(rewriter: _Rewriter, call: relax.Call) -> relax.Expr | None:
    left = rewriter.computed(call.args[0])
    if left is None or len(shape_of(left.data)) < 2:
        return None
    depth = shape_of(left.data)[-1]
    if len(shape_of(call.args[1])) < 2 or depth >= MOST_PRODUCTS:
        return None
    found = rewriter.weights(call.args[1])
    if found is not None and found[1].axis in (None, found[0].ndim - 1):
        weights, scaling = found
        sums = rewriter.builder.emit(relax.op.matmul(left.data, constant(weights), out_dtype="int32"))
        sums = rewriter.minus(sums, left.grid.zero * weights.astype(np.int64).sum(axis=-2, keepdims=True))
        factor = scaling.scale.astype(np.float64) * np.float64(left.grid.scale)
        return rewriter.summed(ScaledSum(((sums, factor),), np.zeros(())))
    right = rewriter.computed(call.args[1])
    return None if right is None else _computed_product(rewriter, left, right, depth)


def _computed_product(rewriter: _Rewriter, left: Quantized, right: Quantized, depth: int) -> relax.Expr:
    """`Σ (a - u)(b - v) = Σ ab - u Σ b - v Σ a + n u v` of two tensors that are computed."""
    sums = rewriter.builder.emit(relax.op.matmul(left.data, right.data, out_dtype="int32"))
    for this, other, axis in ((right, left, -2), (left, right, -1)):
        if other.grid.zero:
            along = relax.op.sum(relax.op.astype(this.data, "int32"), [axis], keepdims=True)
            less = rewriter.builder.emit(relax.op.multiply(along, relax.const(int(other.grid.zero), "int32")))
            sums = rewriter.builder.emit(relax.op.subtract(sums, less))
    sums = rewriter.minus(sums, np.asarray(-depth * left.grid.zero * right.grid.zero))
    factor = np.float64(left.grid.scale) * np.float64(right.grid.scale)
    return rewriter.summed(ScaledSum(((sums, np.asarray(factor)),), np.zeros(())))


# What is done to such sums.


def _added(rewriter: _Rewriter, call: relax.Call) -> relax.Expr | None:
    left, right = call.args
    if rewriter.sum_of(left) is None:
        left, right = right, left
    one = rewriter.sum_of(left)
    if one is None:
        return None
    two, value = rewriter.sum_of(right), rewriter.known(right)
    if two is not None and shape_of(left) == shape_of(right) and len(one.terms + two.terms) <= _MOST_TERMS:
        return rewriter.summed(one.plus(two), call)
    if value is None or broadcast_shapes(shape_of(left), value.shape) != shape_of(left):
        return None
    return _with_bias(rewriter, one, value) if rewriter.is_product(left) else None


def _with_bias(rewriter: _Rewriter, sum_: ScaledSum, value: np.ndarray) -> relax.Expr:
    """A sum and constants: added as integers, where they are whole steps of the sum."""
    (data, factor), *others = sum_.terms
    steps = value / factor
    whole = np.rint(steps)
    if not others and not sum_.shift.any() and _are_steps(steps, whole):
        whole = whole.astype(np.int64)  # sums have no more bits than kernels compute, whatever their terms are
        definition = rewriter.definition(data)
        if is_call(definition, "add") and is_constant(definition.args[1]):
            data, whole = definition.args[0], whole + array_of(definition.args[1])
        biased = rewriter.builder.emit(relax.op.add(data, constant(whole.astype(np.int32))))
        return rewriter.summed(ScaledSum(((biased, factor),), sum_.shift))
    return rewriter.summed(ScaledSum(sum_.terms, sum_.shift + value))


def _are_steps(steps: np.ndarray, whole: np.ndarray) -> bool:
    limit = float(1 << 30)
    return bool((np.abs(whole) < limit).all() and (np.abs(steps - whole) <= _SAME * np.abs(whole)).all())


def _scaled(rewriter: _Rewriter, call: relax.Call) -> relax.Expr | None:
    left, right = call.args
    if is_call(call, "multiply") and is_constant(left):
        left, right = right, left
    sum_ = rewriter.sum_of(left)
    if sum_ is None or not rewriter.is_product(left) or not is_constant(right):
        return None
    factor = array_of(right).astype(np.float64)
    if factor.size != 1 or not np.isfinite(factor).all() or not (factor > 0).all():
        return None
    return rewriter.summed(sum_.times(factor.reshape(()) if is_call(call, "multiply") else 1 / factor.reshape(())))


def _quantized(rewriter: _Rewriter, call: relax.Call) -> relax.Expr | None:
    grid, dtype = grid_of(call), str(call.attrs.out_dtype)
    if grid is None or grid.axis is not None or dtype not in _NARROW:
        return None
    limits = np.iinfo(dtype)
    return _Quantizer(rewriter, grid, dtype).of(call.args[0], int(limits.min), int(limits.max))


class _Quantizer:
    """Makes the integers that tensors are quantized to, from what the tensors are made of."""

    def __init__(self, rewriter: _Rewriter, grid: Grid, dtype: str) -> None:
        self._rewriter, self._grid, self._dtype = rewriter, grid, dtype
        self._emit = rewriter.builder.emit

    def of(self, expr: relax.Expr, low: int, high: int) -> relax.Expr | None:
        """The integers of `expr` cut to a range; None where there is no better way than to quantize floats."""
        source = self._rewriter.quantized(expr)
        if source is not None and source.dtype == self._dtype and source.grid.same_as(self._grid):
            return self._cut(source.data, low, high)
        sum_ = self._rewriter.sum_of(expr)
        if sum_ is not None:
            return self._of_sum(sum_, low, high)
        call = self._rewriter.definition(expr)
        if is_call(call, "nn.relu"):
            return self.of(call.args[0], max(low, self._step(0.0)), high)
        if is_call(call, "clip"):
            least, most = (self._step(float(bound.value)) for bound in call.args[1:])
            return self.of(call.args[0], min(max(low, least), most), max(min(high, most), least))
        if is_call(call, *_MOVING) and self._rewriter.used_once(expr):
            inner = self.of(call.args[0], low, high)
            return None if inner is None else self._emit(relax.Call(call.op, [inner, *call.args[1:]], call.attrs))
        if is_call(call, "concat"):
            return self._of_parts(call, low, high)
        return None

    def _step(self, value: float) -> int:
        return self._grid.step(value, self._dtype)

    def _of_parts(self, call: relax.Call, low: int, high: int) -> relax.Expr | None:
        """Parts of a concatenation, each by itself."""
        fields = list(call.args[0].fields)
        if not any(self._rewriter.sum_of(field) is not None for field in fields):
            return None
        parts = [self.of(field, low, high) for field in fields]
        whole = [
            self._cut(self._emit(self._plainly(field)), low, high) if part is None else part
            for field, part in zip(fields, parts, strict=True)
        ]
        return self._emit(relax.op.concat(whole, int(call.attrs.axis)))

    def _plainly(self, expr: relax.Expr) -> relax.Call:
        scale, zero = constant(self._grid.scale), constant(self._grid.zero.astype(self._dtype))
        return relax.op.quantize(expr, scale, zero, -1, self._dtype)

    def _cut(self, data: relax.Expr, low: int, high: int) -> relax.Expr:
        limits = np.iinfo(self._dtype)
        if low > limits.min:
            data = self._emit(relax.op.maximum(data, relax.const(low, self._dtype)))
        if high < limits.max:
            data = self._emit(relax.op.minimum(data, relax.const(high, self._dtype)))
        return data

    def _of_sum(self, sum_: ScaledSum, low: int, high: int) -> relax.Expr:
        """`Σ integers · factor`, rounded to steps of the grid, moved and cut."""
        steps = self._emit(sum_.times(1 / self._grid.scale.astype(np.float64)).dequantized())
        whole = self._moved_and_cut(steps, low, high) if self._rewriter.small else self._cut_and_moved(steps, low, high)
        return self._emit(relax.op.astype(whole, self._dtype))

    def _moved_and_cut(self, steps: relax.Expr, low: int, high: int) -> relax.Expr:
        """`int32(cut(round(x) + z))`."""
        moved = relax.op.round(steps)
        if self._grid.zero:
            moved = relax.op.add(moved, constant(self._grid.zero.astype(np.float32)))
        return relax.op.astype(relax.op.clip(moved, float(low), float(high)), "int32")

    def _cut_and_moved(self, steps: relax.Expr, low: int, high: int) -> relax.Expr:
        """The same as `int32(round(cut(x))) + z`: rounded and converted in one instruction, if there is one."""
        zero = int(self._grid.zero)
        if not zero:
            return relax.op.astype(relax.op.round(relax.op.clip(steps, float(low), float(high))), "int32")
        least, most, moved = (np.array([bound], np.float32) for bound in (low - zero, high - zero, zero))
        cut = relax.op.minimum(relax.op.maximum(steps, constant(least)), constant(most))
        whole = relax.op.astype(relax.op.round(cut), "int32")
        return relax.op.add(whole, constant(moved.astype(np.int32)))


_MOVING = ("expand_dims", "permute_dims", "reshape", "squeeze", "strided_slice")
_POOLS = ("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")

_RULES: dict[str, _Rule] = {
    **dict.fromkeys((*_MOVING, *_POOLS, "take"), _moved),
    **{f"nn.conv{rank}d": _convolution for rank in (1, 2, 3)},
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
"""What becomes of calls of these operators; None: they stay as they are."""

"""Folds multiplications and additions of constants into the operators that produce their operands.

    c = conv2d(x, W)          c = conv2d(x, W · s)
    d = c * s          →      d = c + t
    e = d + t

This is how inference-time batch normalization disappears (Jacob et al., 2018, section 3.2). `s` and `t` hold one value
for each output channel, or one for all. Where no convolution comes before, of several multiplications and additions by
constants one of each is left; additions that round stay (`shifts_round`). A divisor that is the same for all, such as
the 6 of a hard swish, becomes a number, which is in the code, where it is divided by in less time
(`passes/tir/cpu/divide_by_reciprocal.py`). Other numbers stay operands, so that layers that differ in them share a
kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import tvm
from tvm import relax

from nnefc.passes.graph.debug_locations import joined_name
from nnefc.passes.graph.reassociate_constants import grows, shifts_round
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of, with_operands
from nnefc.passes.graph.stored_weights import weights_of
from nnefc.support.element_types import EIGHT_BITS

__all__ = ["fold_affine"]

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")


def fold_affine(mod: tvm.IRModule, widens: Callable[[str], bool] = lambda _dtype: True) -> tvm.IRModule:
    """Scales the weights of convolutions instead of their results, and joins additions of constants.

    Args:
        widens: whether weights of a 16-bit type stay in it; else they become float32 when they are scaled.
    """
    return relax.transform.DeadCodeElimination()(_Folder(mod, widens).transform())


class _Folder(Rewriter):
    def __init__(self, mod: tvm.IRModule, widens: Callable[[str], bool]) -> None:
        super().__init__(mod)
        self._widens = widens

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not is_call(call, "multiply", "add", "subtract", "divide") or "float" not in str(call.args[0].ty.dtype):
            return call
        left, right = call.args
        if is_call(call, "multiply", "add") and is_constant(left):
            left, right = right, left
        if not is_constant(right) or shape_of(left) != shape_of(var):
            return call
        value = array_of(right)
        match call.op.name:
            case "relax.multiply":
                folded = self._scaled(left, value)
            case "relax.divide":
                folded = None if 0 in value else self._scaled(left, 1.0 / value)
            case "relax.add":
                folded = self._shifted(left, value)
            case _:
                folded = self._shifted(left, -value)
        if folded is None and is_call(call, "divide") and value.size == 1 and value.ndim and value.item() != 0:
            return relax.op.divide(left, constant(value.reshape(())))  # TVM refuses to divide by the number 0
        return call if folded is None else folded

    def _scaled(self, expr: relax.Expr, scale: np.ndarray) -> relax.Expr | None:
        """`expr * scale` without the multiplication, if `expr` is a convolution, a product with a constant, or one of
        both plus a constant."""
        if not self.used_once(expr):
            return None
        source = self.definition(expr)
        if is_call(source, *_CONVOLUTIONS) and (weights := self._weights(source.args[1])) is not None:
            by_channel = _by_output_channel(scale, weights)
            if by_channel is None:
                return None
            made = with_operands(source, [source.args[0], constant(_product(weights, by_channel))])
            return self.builder.emit(made, joined_name(expr.name, self.builder.rewritten))
        if is_call(source, "add") and is_constant(source.args[1]):
            shift = array_of(source.args[1])
            if grows(shift, scale) or self._is_rounding(source.args[0], shift):
                return None
            inner = self._scaled(source.args[0], scale)
            if inner is not None:
                return relax.op.add(inner, constant((shift * scale).astype(scale.dtype)))
        if is_call(source, "multiply") and any(map(is_constant, source.args)):
            return self._joined(source, scale)
        return None

    def _weights(self, expr: relax.Expr) -> np.ndarray | None:
        """Returns the constant weights of a convolution, if they can be scaled: 8 bits are too few."""
        if str(expr.ty.dtype) in EIGHT_BITS:
            return None
        if is_constant(expr):
            return array_of(expr)
        stored = weights_of(expr, self.definition)
        return None if stored is None or self._widens(str(stored.dtype)) else stored.astype(np.float32)

    def _joined(self, source: relax.Call, scale: np.ndarray) -> relax.Expr | None:
        """Returns `source · scale` as one multiplication, if `source` is a multiplication by a constant.

        None where the product of both constants is larger than they are, or out of the range of their type.
        """
        data, other = source.args if is_constant(source.args[1]) else source.args[::-1]
        if is_constant(data) or shape_of(data) != shape_of(source):
            return None
        if grows(array_of(other), scale):
            return None
        factors = (array_of(other).astype(np.float64), scale.astype(np.float64))
        both, limits = factors[0] * factors[1], ml_dtypes.finfo(scale.dtype)  # type: ignore[no-untyped-call]
        usual = (both == 0) | ((np.abs(both) >= limits.tiny) & (np.abs(both) <= limits.max))
        lost = (both == 0) & (factors[0] != 0) & (factors[1] != 0)
        if not usual.all() or lost.any():
            return None
        return relax.op.multiply(data, constant(both.astype(scale.dtype)))

    def _shifted(self, expr: relax.Expr, shift: np.ndarray) -> relax.Expr | None:
        """`expr + shift` as one addition, if `expr` is a convolution, or a sum with a constant itself."""
        source = self.definition(expr)
        if is_call(source, *_CONVOLUTIONS):
            return relax.op.add(expr, constant(shift))
        if self.used_once(expr) and is_call(source, "add") and is_constant(source.args[1]):
            if grows(array_of(source.args[1]), shift):
                return None
            joined = array_of(source.args[1]).astype(np.float64) + shift
            largest = float(ml_dtypes.finfo(shift.dtype).max)  # type: ignore[no-untyped-call]
            if self._is_rounding(expr, shift) or (np.abs(joined) > largest).any():
                return None
            return relax.op.add(source.args[0], constant(joined.astype(shift.dtype)))
        return None

    def _is_rounding(self, expr: relax.Expr, shift: np.ndarray) -> bool:
        """Whether `expr + shift` rounds by a magic number: `expr` adds or subtracts another constant."""
        source = self.definition(expr)
        if not is_call(source, "add", "subtract") or not is_constant(source.args[1]):
            return False
        before = array_of(source.args[1])
        return shifts_round(before if is_call(source, "add") else -before, shift, shift.dtype)


def _product(weights: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Returns weights times factors, rounded once; in memory that a constant needs no copy of."""
    if weights.dtype.kind != "f":  # types that NumPy's DLPack does not know
        return (weights * factors.astype(np.float64)).astype(weights.dtype)
    made = np.from_dlpack(tvm.runtime.empty(weights.shape, str(weights.dtype)))
    # With `out`, NumPy converts parts that stay in the cache, and no array of float64 is made. A product of two numbers
    # of float32 is exact in float64: without the conversions it becomes the same number.
    are_single = weights.dtype == factors.dtype == np.float32
    kind = np.float32 if are_single else np.float64
    product: np.ndarray = np.multiply(weights, factors, out=made, dtype=kind, casting="unsafe")
    return product


def _by_output_channel(scale: np.ndarray, weights: np.ndarray) -> np.ndarray | None:
    """`scale`, broadcast against a result `[N, O, …]`, as a factor of weights `[O, I, …]`."""
    if scale.size == 1:
        return scale.reshape((1,) * weights.ndim)
    per_channel = (1, weights.shape[0]) + (1,) * (weights.ndim - 2)
    full = (1,) * (weights.ndim - scale.ndim) + scale.shape
    if full != per_channel:
        return None
    return scale.reshape((weights.shape[0],) + (1,) * (weights.ndim - 1))

"""Tracks the integers, or sums of integers, that tensors stand for, for the rules of :mod:`compute_in_integers`."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from nnefc.passes.graph.layout.rules.deconvolution import Interleaving
from nnefc.passes.graph.quantized.quantized_values import (
    Grid,
    Quantized,
    ScaledSum,
    limits_of,
    quantized_of,
    zero_type,
)
from nnefc.passes.graph.reassociate_constants import grows, shifts_round
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.support.element_types import BYTES, EIGHT_BITS, FLOAT8

__all__ = ["MOVING", "IntegerRewriter", "QuantizedSums"]

MOVING = ("expand_dims", "permute_dims", "reshape", "squeeze", "strided_slice")
"""Operators whose results' elements are elements of the operand."""


class IntegerRewriter(Rewriter):
    """Rebuilds `main` and records which integers, or sums of integers, each tensor stands for.

    Attributes:
        with_limits: see :class:`compute_in_integers`.
        old_result: the old function's variable of the call that is rewritten.
    """

    old_result: relax.Var

    def __init__(self, mod: tvm.IRModule, with_limits: bool) -> None:
        super().__init__(mod)
        self.with_limits = with_limits
        self._sums: dict[relax.Expr, ScaledSum] = {}
        self._phases: dict[relax.Expr, tuple[ScaledSum, Interleaving]] = {}

    def quantized(self, expr: relax.Expr) -> Quantized | None:
        """Returns the integers that a tensor stands for, if it is dequantized."""
        return quantized_of(self.definition(expr))

    def computed(self, expr: relax.Expr) -> Quantized | None:
        """Returns the 8-bit elements of one grid that a tensor stands for, if the network computes them."""
        source = self.quantized(expr)
        if source is None or source.grid.axis is not None or is_constant(source.data) or source.dtype not in EIGHT_BITS:
            return None
        return source

    def is_product(self, expr: relax.Expr) -> bool:
        """Whether a tensor was found to be a sum here, so that its dequantized values are unused."""
        return expr in self._sums

    def dequantized(self, data: relax.Expr, grid: Grid) -> relax.Expr:
        """Returns the real values of `data`."""
        return self.builder.emit(Quantized(data, grid).dequantized())

    def sum_of(self, expr: relax.Expr) -> ScaledSum | None:
        """Returns a tensor as a sum of scaled integers, if it is one."""
        if expr in self._sums:
            return self._sums[expr]
        source = self.computed(expr)
        if source is None:
            return None
        scale = source.grid.scale.astype(np.float64)
        return ScaledSum(((source.data, scale),), -source.grid.zero * scale)

    def summed(self, terms: ScaledSum, floats: relax.Expr | None = None) -> relax.Expr:
        """Returns a variable for a sum; `floats` computes its real values where they are used."""
        var = self.builder.emit(terms.dequantized() if floats is None else floats)
        self._sums[var] = terms
        return var

    def phases_of(self, expr: relax.Expr) -> tuple[ScaledSum, Interleaving] | None:
        """Returns the sums that a tensor interleaves, and how, if it does."""
        return self._phases.get(expr)

    def interleaved(self, phases: ScaledSum, way: Interleaving) -> relax.Var:
        """Returns a variable for interleaved sums, which computes them in floats."""
        var = way.emit(self.builder, self.builder.emit(phases.dequantized()))
        self._phases[var] = phases, way
        return var

    def affine_of(self, expr: relax.Expr) -> ScaledSum | None:
        """Returns a tensor as a sum or floats, times constants plus constants, if values in between have no other use.

        None where additions round by a magic number.
        """
        factor, shift = np.ones(()), np.zeros(())
        while self.used_once(expr) and str(expr.ty.dtype) == "float32":
            call = self.definition(expr)
            if not is_call(call, "multiply", "divide", "add", "subtract"):
                break
            data, other = call.args
            if is_call(call, "multiply", "add") and is_constant(data):
                data, other = other, data
            if not is_constant(other) or is_constant(data) or shape_of(data) != shape_of(call):
                break
            value = array_of(other).astype(np.float64)
            if not np.isfinite(value).all() or grows(factor, shift, value):
                break
            match call.op.name:
                case "relax.multiply":
                    factor = factor * value
                case "relax.divide" if value.all():
                    factor = factor / value
                case "relax.add" | "relax.subtract":
                    more = value if is_call(call, "add") else -value
                    if shifts_round(more, _unscaled(shift, factor), "float32"):
                        return None
                    shift = shift + more * factor
                case _:
                    break
            expr = data
        if not factor.shape and factor == 1 and not shift.any():
            return None
        sum_ = self.sum_of(expr) or ScaledSum(((expr, np.ones(())),), np.zeros(()))
        if grows(sum_.shift, shift, factor) or shifts_round(sum_.shift, _unscaled(shift, factor), "float32"):
            return None
        made = sum_.times(factor)
        return ScaledSum(made.terms, made.shift + shift)

    def known(self, expr: relax.Expr) -> np.ndarray | None:
        """Returns the value of a constant, or of a dequantized constant, in float64."""
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
        """Returns dequantized 8-bit constants whose zero point is 0, or can be made so, and their scale."""
        source = self.quantized(expr)
        if source is None or not is_constant(source.data) or source.dtype not in EIGHT_BITS:
            return None
        values, grid = array_of(source.data), source.grid
        if not grid.zero.any():
            return values, grid
        spread = [-1 if axis == grid.axis else 1 for axis in range(values.ndim)] if grid.axis is not None else []
        centred = values.astype(np.int64) - grid.zero.reshape(spread)
        fits = next((t for t in BYTES if np.iinfo(t).min <= centred.min() and centred.max() <= np.iinfo(t).max), None)
        return None if fits is None else (centred.astype(fits), Grid(grid.scale, np.zeros_like(grid.zero), grid.axis))

    def minus(self, sums: relax.Expr, less: np.ndarray) -> relax.Expr:
        """Subtracts constants, which may be zero, from sums in int32."""
        return self.builder.emit(relax.op.add(sums, constant(-less.astype(np.int32)))) if less.any() else sums


def _unscaled(shift: np.ndarray, factor: np.ndarray) -> np.ndarray:
    return shift / np.where(factor == 0, 1, factor)


_SAME = 1e-9  # of what a sum adds, which is computed in float64
_MAX_STEPS = 64
"""The largest number of clamps and moves between a sum and its quantization; of longer chains the last ones are
computed as floats.
"""


class QuantizedSums:
    """Computes the integers that tensors are quantized to from the sums that the tensors stand for."""

    def __init__(self, rewriter: IntegerRewriter, grid: Grid, dtype: str) -> None:
        self._rewriter, self._grid, self._dtype = rewriter, grid, dtype
        self._emit = rewriter.builder.emit

    def of(self, expr: relax.Expr, low: float, high: float, steps: int = _MAX_STEPS) -> relax.Expr | None:
        """Returns the integers of `expr` cut to a range; None where there is no better way than to quantize floats.

        `steps` limits and moves before it may be looked through.
        """
        source = self._rewriter.quantized(expr)
        if source is not None and source.dtype == self._dtype and source.grid.same_as(self._grid):
            return self._cut(source.data, low, high)
        sum_ = self._rewriter.sum_of(expr)
        if sum_ is not None:
            return self._of_sum(sum_, low, high)
        phases = self._rewriter.phases_of(expr)
        if phases is not None:
            return phases[1].emit(self._rewriter.builder, self._of_sum(phases[0], low, high))
        affine = self._rewriter.affine_of(expr)
        if affine is not None:
            return self._of_sum(affine, low, high)
        call = self._rewriter.definition(expr)
        if not steps:
            return None
        if is_call(call, "nn.relu"):
            return self.of(call.args[0], max(low, self._step(0.0)), high, steps - 1)
        if is_call(call, "clip"):
            minimum, maximum = (self._step(float(bound.value)) for bound in call.args[1:])
            return self.of(call.args[0], min(max(minimum, low), high), max(min(maximum, high), low), steps - 1)
        if is_call(call, *MOVING) and self._rewriter.used_once(expr):
            inner = self.of(call.args[0], low, high, steps - 1)
            return None if inner is None else self._emit(relax.Call(call.op, [inner, *call.args[1:]], call.attrs))
        if is_call(call, "concat"):
            return self._of_parts(call, low, high, steps - 1)
        return None

    def _step(self, value: float) -> float:
        return self._grid.step(value, self._dtype)

    def _of_parts(self, call: relax.Call, low: float, high: float, steps: int) -> relax.Expr | None:
        """Quantizes each part of a concatenation by itself."""
        fields = list(call.args[0].fields)
        parts = [self.of(field, low, high, steps) if self._is_own(field) else None for field in fields]
        if all(part is None for part in parts):
            return None
        whole = [
            self._cut(self._emit(self._plainly(field)), low, high) if part is None else part
            for field, part in zip(fields, parts, strict=True)
        ]
        return self._emit(relax.op.concat(whole, int(call.attrs.axis)))

    def _is_own(self, field: relax.Expr) -> bool:
        """Whether a part is only needed as integers."""
        return self._rewriter.used_once(field) or self._rewriter.quantized(field) is not None

    def _plainly(self, expr: relax.Expr) -> relax.Call:
        scale, zero = constant(self._grid.scale), constant(self._grid.zero.astype(zero_type(self._dtype)))
        return relax.op.quantize(expr, scale, zero, -1, self._dtype)

    def _cut(self, data: relax.Expr, low: float, high: float) -> relax.Expr:
        lower, upper = limits_of(self._dtype)
        if low <= lower and high >= upper:
            return data
        if self._dtype in FLOAT8:
            numbers = self._emit(relax.op.astype(data, "float32"))
            return self._emit(relax.op.astype(self._limited(numbers, low, high, "float32"), self._dtype))
        return self._limited(data, low, high, self._dtype)

    def _limited(self, data: relax.Expr, low: float, high: float, dtype: str) -> relax.Expr:
        """Returns numbers within limits, but for those that the type of the result has anyway."""
        lower, upper = limits_of(self._dtype)
        if low > lower:
            data = self._emit(relax.op.maximum(data, relax.const(low, dtype)))
        if high < upper:
            data = self._emit(relax.op.minimum(data, relax.const(high, dtype)))
        return data

    def _of_sum(self, sum_: ScaledSum, low: float, high: float) -> relax.Expr:
        """`Σ elements · factor`, rounded to steps of the grid, moved and cut; conversions to floats round and cut."""
        sum_ = self._without_byte(sum_)
        steps = self._emit(sum_.times(1 / self._grid.scale.astype(np.float64)).dequantized())
        if self._dtype in FLOAT8:
            return self._emit(relax.op.astype(self._limited(steps, low, high, "float32"), self._dtype))
        cut = self._moved_and_cut if self._rewriter.with_limits else self._cut_and_moved
        return self._emit(relax.op.astype(cut(steps, low, high), self._dtype))

    def _without_byte(self, sum_: ScaledSum) -> ScaledSum:
        """Returns dequantized bytes that nothing else reads as the rounded floats that became bytes, without their zero
        point: `int8(cut(round(x) + z)) · f - z · f` as `round(cut(x)) · f`."""
        if len(sum_.terms) != 1 or not self._rewriter.used_once(sum_.terms[0][0]):
            return sum_
        ((data, factor),) = sum_.terms
        found = self._rounded(data)
        if found is None or not np.allclose(sum_.shift, -found[1] * factor, rtol=_SAME, atol=0):
            return sum_
        return ScaledSum(((self._emit(found[0]), factor),), np.zeros(()))

    def _rounded(self, data: relax.Expr) -> tuple[relax.Expr, int] | None:
        """Returns the float32 that bytes were made of by :meth:`_moved_and_cut`, less the zero point, and this one."""
        definition, zero = self._rewriter.definition, 0
        byte = definition(data)
        whole = definition(byte.args[0]) if is_call(byte, "astype") else None
        clip = definition(whole.args[0]) if is_call(whole, "astype") and str(whole.attrs.dtype) == "int32" else None
        if not is_call(clip, "clip"):
            return None
        moved = definition(clip.args[0])
        if is_call(moved, "add") and is_constant(moved.args[1]) and array_of(moved.args[1]).size == 1:
            zero, moved = int(array_of(moved.args[1]).item()), definition(moved.args[0])
        if not is_call(moved, "round") or not self._is_of_integers(moved.args[0]):
            return None
        low, high = (float(bound.value) - zero for bound in clip.args[1:])
        whole = relax.op.round(relax.op.clip(moved.args[0], low, high))
        return relax.op.astype(relax.op.astype(whole, "int32"), "float32"), zero

    def _is_of_integers(self, expr: relax.Expr) -> bool:
        """Whether a float is computed of integers and constants, and so never NaN."""
        waiting, steps = [expr], 0
        while waiting and steps < _MAX_STEPS:
            call, steps = self._rewriter.definition(waiting.pop()), steps + 1
            if is_call(call, "add", "multiply"):
                waiting += [arg for arg in call.args if not is_constant(arg)]
            elif not is_call(call, "astype") or "int" not in str(call.args[0].ty.dtype):
                return False
        return not waiting

    def _moved_and_cut(self, steps: relax.Expr, low: float, high: float) -> relax.Expr:
        """`int32(cut(round(x) + z))`."""
        moved = relax.op.round(steps)
        if self._grid.zero:
            moved = relax.op.add(moved, constant(self._grid.zero.astype(np.float32)))
        return relax.op.astype(relax.op.clip(moved, float(low), float(high)), "int32")

    def _cut_and_moved(self, steps: relax.Expr, low: float, high: float) -> relax.Expr:
        """Returns the same as `int32(round(cut(x))) + z`: rounded and converted in one instruction, if there is one."""
        zero = int(self._grid.zero)
        if not zero:
            return relax.op.astype(relax.op.round(relax.op.clip(steps, float(low), float(high))), "int32")
        minimum, maximum, moved = (np.array([bound], np.float32) for bound in (low - zero, high - zero, zero))
        cut = relax.op.minimum(relax.op.maximum(steps, constant(minimum)), constant(maximum))
        whole = relax.op.astype(relax.op.round(cut), "int32")
        return relax.op.add(whole, constant(moved.astype(np.int32)))

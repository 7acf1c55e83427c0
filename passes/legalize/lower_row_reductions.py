"""Legalizes softmax and normalizations as row-wise reductions and element-wise operations.

    y = softmax(x)     →     m = max(x, last axis);  e = exp(x - m);  s = sum(e, last axis);  y = e / s

A reduction of rows behaves like an element-wise step as far as rows are concerned: fusion may join it with what comes
before and after, so that a whole normalization becomes one kernel that passes over each row while it is in the cache.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import tvm
from tvm import relax, te, tirx

from nnefc.operators.math.reducers import better_of, min_or_max_of
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import Rewriter, shape_of
from nnefc.passes.legalize.reductions import reduce_axes
from nnefc.passes.schedule.fill_padding import VectorMachine
from nnefc.symbolic.dims import Dimension, Size, dimension, dimensions, element_count, expression, is_known

__all__ = ["lower_row_reductions"]


def lower_row_reductions(mod: tvm.IRModule, target: VectorMachine) -> tvm.IRModule:
    """Lowers reductions over the last axes, and operators made of them, to kernels that fusion can join."""
    return relax.transform.DeadCodeElimination()(_Lowerer(mod, target).transform())


@dataclass(frozen=True)
class _Reducer:
    """The reduction of a row's elements, and the combination of two such results."""

    over: Callable[..., tirx.Expr]
    join: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]


_REDUCERS = {
    "sum": _Reducer(te.sum, operator.add),
    "max": _Reducer(te.max, tirx.max),
    "maximum": _Reducer(min_or_max_of(maximum=True), better_of(maximum=True)),
    "minimum": _Reducer(min_or_max_of(maximum=False), better_of(maximum=False)),
}
"""The reducer of each kind. `max`, used by softmax alone, may lose NaN: the sum of exponentials that follows is NaN
anyway."""

_BY = {"mean": "sum", "max": "maximum", "min": "minimum"}
"""The reducer of each reduction that has another name."""


def reduce_row_wise(data: te.Tensor, count: int, reducer: _Reducer, lanes: int) -> te.Tensor:
    """Reduces the last `count` axes of `data`; they stay, with size 1.

    If rows are not full vectors, their tails are reduced separately.

    Of rows that are not full vectors, what follows the last whole one is reduced by itself.
    """
    rows = len(data.shape) - count
    length = dimension(data.shape[-1])
    sizes = dimensions(data.shape[rows:])
    odd = is_known(*sizes) and element_count(sizes) % lanes and length > lanes  # an open rest might be nothing at all
    seams = [0, length - length % lanes, length] if odd else [0, length]

    def part(begin: Dimension, end: Dimension) -> te.Tensor:
        axes = [te.reduce_axis((0, size), f"r{i}") for i, size in enumerate((*data.shape[rows:-1], end - begin))]

        def element(*index: tirx.Var) -> tirx.Expr:
            *outer, last = axes
            return reducer.over(data(*index[:rows], *outer, last + begin), axis=axes)

        return te.compute((*data.shape[:rows], *[1] * count), element, name="row")

    first, *tail = [part(begin, end) for begin, end in pairwise(seams)]
    return te.compute(first.shape, lambda *i: reducer.join(first(*i), tail[0](*i)), name="whole") if tail else first


def _divided(total: te.Tensor, count: Dimension) -> te.Tensor:
    """Returns a tensor divided by a number that is known at run time."""
    return te.compute(total.shape, lambda *index: total(*index) / expression(count).astype(total.dtype), name="mean")


class _Lowerer(Rewriter):
    def __init__(self, mod: tvm.IRModule, target: VectorMachine) -> None:
        super().__init__(mod)
        self._target = target

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        name = call.op.name.removeprefix("relax.") if isinstance(call.op, tvm.ir.Op) else ""
        rule = _RULES.get(name)
        lowered = rule(self, call) if rule is not None else None
        return call if lowered is None else lowered

    def softmax(self, call: relax.Call) -> relax.Expr | None:
        data = call.args[0]
        if not self._is_last(data, call.attrs.axis):
            return None
        powers = self._emit(relax.op.exp(self._emit(data - self._reduce(data, 1, "max"))))
        return powers / self._reduce(powers, 1, "sum")

    def log_softmax(self, call: relax.Call) -> relax.Expr | None:
        data = call.args[0]
        if not self._is_last(data, call.attrs.axis):
            return None
        shifted = self._emit(data - self._reduce(data, 1, "max"))
        total = self._reduce(self._emit(relax.op.exp(shifted)), 1, "sum")
        return shifted - self._emit(relax.op.log(total))

    def layer_norm(self, call: relax.Call) -> relax.Expr | None:
        data, gamma, beta = call.args
        count = self._trailing(data, call.attrs.axes)
        if count is None:
            return None
        centered = self._emit(data - self._mean(data, count))
        deviation = self._deviation(centered, count, call.attrs.epsilon)
        result = self._emit(centered * deviation)
        if call.attrs.scale:
            result = self._emit(result * gamma)
        return result + beta if call.attrs.center else result

    def rms_norm(self, call: relax.Call) -> relax.Expr | None:
        data, weight = call.args[:2]
        count = self._trailing(data, call.attrs.axes)
        if count is None:
            return None
        return self._emit(data * self._deviation(data, count, call.attrs.epsilon)) * weight

    def reduction(self, call: relax.Call) -> relax.Expr | None:
        """Reduces by sum, mean, maximum or minimum over the last axes, and then over the others.

        Rows are reduced in several parts: a reduction over all axes at once would add one term after the other, with a
        rounding error for each.

        Rows are reduced in several parts at once, where all axes at once would add one term after the other, and the
        errors of as many roundings.
        """
        (data,), name = call.args, call.op.name.removeprefix("relax.")
        sizes = shape_of(data)
        rank = len(sizes)
        axes = sorted(int(axis) % rank for axis in (range(rank) if call.attrs.axis is None else call.attrs.axis))
        count = next((n for n in range(len(axes), 0, -1) if axes[-n:] == list(range(rank - n, rank))), 0)
        if not count or "float" not in str(data.ty.dtype):
            return None
        by = _BY.get(name, name)
        kept = self._reduce(data, count, by)
        others = tuple(axes[:-count])
        if any(sizes[axis] != 1 for axis in others):
            kept = self.emit_te(reduce_axes, kept, others, _REDUCERS[by].over, True, name=by)
        if name == "mean":
            kept = self._divided(kept, element_count([sizes[axis] for axis in axes]))
        if call.attrs.keepdims:
            return kept
        return relax.op.reshape(kept, [size for axis, size in enumerate(sizes) if axis not in axes])

    def _reduce(self, data: relax.Expr, count: int, name: str) -> relax.Var:
        attrs = {FUSION: OpPattern.INJECTIVE}
        lanes = self._target.lanes(str(data.ty.dtype))
        return self.emit_te(reduce_row_wise, data, count, _REDUCERS[name], lanes, name=f"row_{name}", attrs=attrs)

    def _mean(self, data: relax.Expr, count: int) -> relax.Var:
        return self._divided(self._reduce(data, count, "sum"), element_count(shape_of(data)[-count:]))

    def _divided(self, total: relax.Var, count: Dimension) -> relax.Var:
        if isinstance(count, Size):
            return self.emit_te(_divided, total, count, name="mean")
        factor = 1.0 / count if count else math.nan  # nothing has no mean
        return self._emit(total * relax.const(factor, str(total.ty.dtype)))

    def _deviation(self, centered: relax.Expr, count: int, epsilon: float) -> relax.Var:
        """Returns 1 / √(mean of squares + ε)."""
        variance = self._mean(self._emit(centered * centered), count)
        return self._emit(relax.op.rsqrt(self._emit(variance + relax.const(epsilon, str(centered.ty.dtype)))))

    def _emit(self, expr: relax.Expr) -> relax.Var:
        return self.builder.emit(expr)

    def _is_last(self, data: relax.Expr, axis: int) -> bool:
        rank = len(shape_of(data))
        return rank > 0 and int(axis) % rank == rank - 1 and "float" in str(data.ty.dtype)

    def _trailing(self, data: relax.Expr, axes: Iterable[object]) -> int | None:
        """Returns the number of axes in `axes`, if they are the last ones."""
        rank = len(shape_of(data))
        wanted = sorted(int(str(axis)) % rank for axis in axes) if rank else []
        return len(wanted) if wanted and wanted == list(range(rank - len(wanted), rank)) else None


_RULES: dict[str, Callable[[_Lowerer, relax.Call], relax.Expr | None]] = {
    "nn.softmax": _Lowerer.softmax,
    "nn.log_softmax": _Lowerer.log_softmax,
    "nn.layer_norm": _Lowerer.layer_norm,
    "nn.rms_norm": _Lowerer.rms_norm,
    "sum": _Lowerer.reduction,
    "mean": _Lowerer.reduction,
    "max": _Lowerer.reduction,
    "min": _Lowerer.reduction,
}

"""Matches local response normalization in its primitive operators, and replaces it by one operator.

    s = x * x
    m = mean of s over a window of channels                         →           y = local_response(x)
    y = x / (m * alpha + bias) ^ beta

The window of channels is an average pooling of the tensor seen as `[N, 1, C, spatial]`.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax

from nnefc.ir.attributes import LOCAL_RESPONSE
from nnefc.ir.kernel_calls import emit_te
from nnefc.passes.compute.local_response import ChannelWindow, normalize_row_major
from nnefc.passes.graph.rewriter import Rewriter, array_of, is_call, is_constant, shape_of

__all__ = ["fuse_local_response"]

_LARGEST_WINDOW = 64


def fuse_local_response(mod: tvm.IRModule) -> tvm.IRModule:
    """Fuses each local response normalization into one kernel."""
    return relax.transform.DeadCodeElimination()(_Joiner(mod).transform())


@dataclass(frozen=True)
class _Affine:
    """`inner * factor + shift`."""

    inner: relax.Expr
    factor: float
    shift: float


class _Joiner(Rewriter):
    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not is_call(call, "divide") or str(call.args[0].ty.dtype) != "float32":
            return call
        data, divisor = call.args
        response = self._response(data, divisor)
        if response is None:
            return call
        fields = [response.before, response.after, response.scale, response.bias, response.power]
        return emit_te(
            self.builder,
            lambda x: normalize_row_major(x, response),
            data,
            name="local_response",
            attrs={LOCAL_RESPONSE: [float(field) for field in fields]},
        )

    def _response(self, data: relax.Expr, divisor: relax.Expr) -> ChannelWindow | None:
        power, base = self._power(divisor)
        affine = self._affine(base)
        window = self._window(affine.inner, data)
        if window is None:
            return None
        before, after = window
        return ChannelWindow(before, after, affine.factor / (before + after + 1), affine.shift, power)

    def _power(self, expr: relax.Expr) -> tuple[float, relax.Expr]:
        call = self.definition(expr)
        if is_call(call, "sqrt"):
            return 0.5, call.args[0]
        if is_call(call, "power") and (exponent := _number_of(*call.args)) is not None:
            return exponent, call.args[0]
        return 1.0, expr

    def _affine(self, expr: relax.Expr) -> _Affine:
        """Returns the factor and then the term of an affine step, each or neither."""
        factor, shift = 1.0, 0.0
        for name in ("add", "multiply"):
            call = self.definition(expr)
            if is_call(call, name):
                for inner, other in (tuple(call.args), tuple(reversed(call.args))):
                    if (value := _number_of(inner, other)) is not None and not is_constant(inner):
                        expr = inner
                        shift, factor = (value, factor) if name == "add" else (shift, value)
                        break
        return _Affine(expr, factor, shift)

    def _window(self, mean: relax.Expr, data: relax.Expr) -> tuple[int, int] | None:
        """(before, after) if `mean` is that of the squares of `data` over a window of channels."""
        shape = shape_of(data)
        back = self.definition(mean)
        pool = self.definition(back.args[0]) if is_call(back, "reshape") else None
        seen = self.definition(pool.args[0]) if is_call(pool, "nn.avg_pool2d") else None
        square = self.definition(seen.args[0]) if is_call(seen, "reshape") else None
        if pool is None or not is_call(square, "multiply") or not all(arg.same_as(data) for arg in square.args):
            return None
        attrs = pool.attrs
        size, strides, dilation, padding = (
            [int(value) for value in values]
            for values in (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding)
        )
        top, left, bottom, right = padding
        usual = strides == [1, 1] and dilation == [1, 1] and size[1] == 1 and left == right == 0
        whole = attrs.count_include_pad and top + bottom + 1 == size[0] <= _LARGEST_WINDOW
        if not (usual and whole) or shape_of(mean) != shape or shape_of(seen)[:3] != (shape[0], 1, shape[1]):
            return None
        return top, bottom


def _number_of(data: relax.Expr, expr: relax.Expr) -> float | None:
    """Returns the value of a constant of one element, which adds no axes to those of `data`."""
    if not is_constant(expr) or len(shape_of(expr)) > len(shape_of(data)):
        return None
    array = array_of(expr)
    return float(array.reshape(())) if array.size == 1 else None

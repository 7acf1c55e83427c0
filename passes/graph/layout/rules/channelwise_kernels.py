"""Rewrites kernels that compute each element from elements of the same channel: the same computation on blocks.

    q[n, c, y, x] = round(x[n, c, y, x] / s[])         q[n, b, y, x, i] = round(x[n, b, y, x, i] / s[])
    p[n, c, y, x] = q[n, c, y - 1, x - 1] or z[]   →   p[n, b, y, x, i] = q[n, b, y - 1, x - 1, i] or z[]
    t[n, c, y, x] = table[q[n, c, y, x]]               t[n, b, y, x, i] = table[q[n, b, y, x, i]]

So are quantized while a network runs, and padded with a zero point, tensors that convolutions take in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm import relax, te, tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.ir.kernel_calls import emit_te
from nnefc.passes.graph.fusion.elementwise_kernels import element_of_kernel
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.tir.common.expressions import (
    IF_THEN_ELSE,
    inside,
    loads_of,
    parts_of,
    substituted,
)
from nnefc.symbolic.dims import dimensions, expression

__all__ = ["RULES"]

_TAME_CALLS = (*IF_THEN_ELSE, *(f"tirx.{name}" for name in ("ceil", "fabs", "floor", "nearbyint", "round", "trunc")))
"""Functions whose results are finite for all finite arguments."""

_QUOTIENTS = (tirx.Div, tirx.FloorDiv, tirx.Mod, tirx.FloorMod)


@dataclass(frozen=True, eq=False)
class _Kernel:
    """A kernel that computes element by element.

    Attributes:
        axes: of its result.
        element: the element there, of the kernel's parameters.
        of_channels: the parameters that are read at the element's own channel only; others are shared by all.
    """

    axes: Sequence[tirx.Var]
    element: tirx.Expr
    of_channels: frozenset[tirx.Var]

    @property
    def is_tame(self) -> bool:
        """Whether finite elements have finite results, also those of empty slots."""
        for part in inside(self.element):
            if isinstance(part, Call) and part.op.name not in _TAME_CALLS:
                return False
            if isinstance(part, _QUOTIENTS) and any(load.source in self.of_channels for load in loads_of(part.b)):
                return False
        return True


def _elements(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    result, function = call.ty_args[0], layouts.builder.get()[call.args[0]]
    operands = list(call.args[1].fields) if isinstance(call.args[1], relax.Tuple) else []
    led = [arg for arg in operands if layouts.layout_of(arg) is not None]
    if not led or not isinstance(result, relax.TensorType) or not isinstance(function, tirx.PrimFunc):
        return None
    shape, layout = dimensions(result.shape), layouts.layout_of(led[0])
    kernel = _kernel_of(function)
    if layout is None or kernel is None or len(shape) < 3 or shape[1] != layout.channels:
        return None
    if not layout.is_full and not kernel.is_tame:
        return None
    params = dict(zip(function.params, operands, strict=False))
    given = {param: arg for param, arg in params.items() if isinstance(arg.ty, relax.TensorType)}
    sizes = {param: arg for param, arg in params.items() if param not in given}
    if any(layouts.row_major_shape(given[param])[1:2] != (shape[1],) for param in kernel.of_channels):
        return None
    own = [
        layouts.laid_out(arg, layout) if param in kernel.of_channels else layouts.row_major(arg)
        for param, arg in given.items()
    ]
    batch, _, *spatial = (expression(size) for size in shape)

    def compute(*tensors: te.Tensor) -> te.Tensor:
        tensor_of = dict(zip(given, tensors, strict=True))

        def element(n: tirx.Var, block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
            *position, offset = tail

            def load(source: tirx.Var, index: Sequence[tirx.Expr]) -> tirx.Expr:
                if source not in kernel.of_channels:
                    return tensor_of[source](*index)
                return tensor_of[source](index[0], block, *index[2:], offset)

            here = dict(zip(kernel.axes, (n, block, *position), strict=True))
            return substituted(kernel.element, {**sizes, **here}, load)

        return te.compute((batch, layout.blocks, *spatial, layout.size), element, name=str(call.args[0].name_hint))

    made = emit_te(layouts.builder, compute, *own, name=str(call.args[0].name_hint))
    return layouts.having(made, layout)


def _kernel_of(function: tirx.PrimFunc) -> _Kernel | None:
    """Returns the computation of an element-wise kernel; None for others, and where it reads other channels than its
    element's.
    """
    found = element_of_kernel(function)
    if found is None or len(found[0]) < 3:
        return None
    axes, element = found
    channel = axes[1]
    of_channels: set[tirx.Var] = set()
    of_all: set[tirx.Var] = set()
    for load in loads_of(element):
        used = [offset for offset, index in enumerate(load.indices) if channel in _outside_loads(index)]
        if used and (used != [1] or not load.indices[1].same_as(channel) or len(load.indices) != len(axes)):
            return None
        (of_channels if used else of_all).add(load.source)
    if of_channels & of_all or channel in _outside_loads(element):
        return None
    return _Kernel(axes, element, frozenset(of_channels))


def _outside_loads(expr: tirx.Expr) -> Iterator[tirx.Var]:
    """Returns the variables of an expression that are used outside of the indices of loads."""
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tirx.Var):
            yield part
        if not isinstance(part, TensorLoad):
            waiting += parts_of(part)


RULES: dict[str, LayoutRule] = {"call_tir": _elements}

"""Recognizes operators and kernels that pad a tensor with one value, by widths that may be of dynamic size.

    p[n, c, y, x] = d[n, c, y - a, x - b] if a <= y and y - a < h and x - b < w else 0     (b = 0)

The consumer of such a tensor may then have it padded otherwise: a convolution lets the kernel that makes `d` write into
the interior of the padded tensor, so that `d` is not copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax, tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import Analyzer

from nnefc.passes.graph.fusion.elementwise_kernels import element_of_kernel
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter
from nnefc.passes.graph.rewriter import is_call, shape_of
from nnefc.passes.tir.common.expressions import IF_THEN_ELSE, conjuncts, variables_of
from nnefc.symbolic.dims import Dimension, dimension, expression, known_less, may_exceed

__all__ = ["PaddedTensor", "padded_tensor", "padding_of"]


@dataclass(frozen=True)
class PaddedTensor:
    """A tensor with a border around its spatial dimensions.

    Attributes:
        data: the tensor without the border.
        before, after: widths of the border of each spatial dimension.
        value: of the elements of the border.
    """

    data: relax.Expr
    before: tuple[Dimension, ...]
    after: tuple[Dimension, ...]
    value: float


def padding_of(layouts: LayoutRewriter, expr: relax.Expr, rank: int) -> PaddedTensor | None:
    """Returns the padding that an operator or a kernel computes, for a tensor with this number of spatial dimensions;
    None for others.
    """
    source = layouts.definition(expr)
    if not is_call(source, "nn.pad"):
        return padded_tensor(layouts, expr, rank)
    if source.attrs.pad_mode != "constant":
        return None
    widths = tuple(int(width) for width in source.attrs.pad_width)
    before, after = widths[::2], widths[1::2]
    if any((*before[:2], *after[:2])):
        return None
    data = layouts.origin(source.args[0])
    return PaddedTensor(data, before[2:], after[2:], float(source.attrs.pad_value))


def padded_tensor(layouts: LayoutRewriter, expr: relax.Expr, rank: int) -> PaddedTensor | None:
    """Returns the padding that a kernel computes, for a tensor with this number of spatial dimensions; None for
    others.
    """
    call = layouts.definition(expr)
    if not is_call(call, "call_tir") or not isinstance(call.args[1], relax.Tuple):
        return None
    function = layouts.builder.get()[call.args[0]]
    found = element_of_kernel(function) if isinstance(function, tirx.PrimFunc) else None
    if found is None:
        return None
    axes, element = found
    if not isinstance(element, Call) or element.op.name not in IF_THEN_ELSE:
        return None
    condition, chosen, outside = element.args
    operands = dict(zip(function.params, call.args[1].fields, strict=False))
    if not isinstance(chosen, TensorLoad) or not isinstance(outside, tirx.IntImm | tirx.FloatImm):
        return None
    data = operands.get(chosen.source)
    if data is None or layouts.layout_of(data) != layouts.layout_of(expr) or len(chosen.indices) != len(axes):
        return None
    widths = _widths(axes, chosen.indices, shape_of(data), shape_of(expr))
    if widths is None or not _is_interior(condition, axes, widths, shape_of(data)):
        return None
    spatial = range(2, 2 + rank)
    if any(pair != (0, 0) for axis, pair in enumerate(widths) if axis not in spatial):
        return None
    before, after = zip(*(widths[axis] for axis in spatial), strict=True)
    return PaddedTensor(layouts.origin(data), before, after, outside.value)


_Widths = Sequence[tuple[Dimension, Dimension]]
"""The widths of the border before and after each dimension."""


def _widths(
    axes: Sequence[tirx.Var], indices: Sequence[tirx.Expr], sizes: Sequence[Dimension], padded: Sequence[Dimension]
) -> _Widths | None:
    """Returns the widths of the border where the loaded index is that of the result less a width, never negative."""
    widths = []
    for axis, index, size, whole in zip(axes, indices, sizes, padded, strict=True):
        low = Analyzer().simplify(axis - index)
        if variables_of([low]) & {*axes}:
            return None
        before = dimension(low)
        after = whole - size - before
        if may_exceed(0, before) or known_less(after, 0):
            return None
        widths.append((before, after))
    return widths


def _is_interior(condition: tirx.Expr, axes: Sequence[tirx.Var], widths: _Widths, sizes: Sequence[Dimension]) -> bool:
    """Whether a condition holds for the interior of a padded tensor, and nowhere else."""
    needed = []
    for axis, (before, after), size in zip(axes, widths, sizes, strict=True):
        needed += [] if before == 0 else [axis - expression(before)]
        needed += [] if after == 0 else [expression(size + before) - 1 - axis]
    stated = [_slack(part) for part in conjuncts(condition)]
    if len(stated) != len(needed) or any(slack is None for slack in stated):
        return False
    analyzer = Analyzer()
    return all(any(analyzer.can_prove_equal(slack, each) for slack in stated) for each in needed)


def _slack(condition: tirx.Expr) -> tirx.Expr | None:
    """Returns the difference that is not negative exactly where a comparison of integers holds."""
    match condition:
        case tirx.GE():
            return condition.a - condition.b
        case tirx.LE():
            return condition.b - condition.a
        case tirx.LT():
            return condition.b - condition.a - 1
        case tirx.GT():
            return condition.a - condition.b - 1
    return None

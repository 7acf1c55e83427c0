"""Pads a tensor in two steps: a block that copies the interior, and loops that fill the border.

    for v: P[v + before] = X[v]              # an ordinary computation, which is fused with the kernel that computes X
    for the positions of P outside: P = 0    # added after scheduling: see `passes/schedule/fill_padding.py`

The copy is element-wise. Fused with the kernel that computes X, it lets that kernel write its results directly into the
interior of P, without a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorRegion

from nnefc.ir.attributes import PADDING
from nnefc.ir.rebuild import loop_nest, root_block
from nnefc.symbolic.dims import Dimension, expression

__all__ = ["Border", "write_inside"]


@dataclass(frozen=True)
class Border:
    """The number of elements before and after each dimension of a tensor, 0 for those that are not padded, and their
    value.
    """

    before: tuple[Dimension, ...]
    after: tuple[Dimension, ...]
    value: int = 0

    def around(self, shape: Sequence[Dimension]) -> tuple[Dimension, ...]:
        """Return the shape with the border."""
        return tuple(low + size + high for low, size, high in zip(self.before, shape, self.after, strict=True))


def write_inside(shape: Sequence[Dimension], dtype: str, border: Border) -> tirx.PrimFunc:
    """Return the kernel `(X, P)` that copies X, of this shape, into the interior of P; the border of P is not
    written.
    """
    return _copy(shape, border.around(shape), border.before, dtype, {PADDING: border.value})


def write_beginning(shape: Sequence[Dimension], target: Sequence[Dimension], dtype: str) -> tirx.PrimFunc:
    """Return the kernel `(X, Y)` that copies X, of this shape, to the beginning of Y; other elements of Y are not
    written.
    """
    return _copy(shape, target, [0] * len(shape), dtype, {})


def _copy(
    shape: Sequence[Dimension],
    around: Sequence[Dimension],
    before: Sequence[Dimension],
    dtype: str,
    note: Mapping[str, int],
) -> tirx.PrimFunc:
    """Return the kernel that copies a tensor into one of the shape `around`, at the offsets `before`."""
    sizes = [expression(size) for size in shape]
    data = tirx.decl_buffer(sizes, dtype, "data", layout=None)
    padded = tirx.decl_buffer([expression(size) for size in around], dtype, "padded", layout=None)
    axes = [_axis(size, f"v{i}") for i, size in enumerate(sizes)]
    source = [axis.var for axis in axes]
    target = [v + expression(low) if low else v for v, low in zip(source, before, strict=True)]
    copy = tirx.BufferStore(padded, data[tuple(source)], target)
    step = s_tir.SBlock(axes, [_element(data, source)], [_element(padded, target)], "pad", copy, annotations=dict(note))
    loops = [tirx.Var(f"i{i}", "int64") for i in range(len(sizes))]
    body = loop_nest(loops, sizes, s_tir.SBlockRealize(loops, True, step))
    return tirx.PrimFunc([data, padded], root_block(body)).with_attr("tirx.noalias", True)


def _axis(size: tirx.Expr, name: str) -> tirx.IterVar:
    return tirx.IterVar(Range(expression(0), size), tirx.Var(name, "int64"), tirx.IterVar.DataPar)


def _element(buffer: tirx.Var, index: Sequence[tirx.Expr]) -> TensorRegion:
    return TensorRegion(buffer, [Range.from_min_extent(i, expression(1)) for i in index], buffer.ty)

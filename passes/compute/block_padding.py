"""Pads a tensor block by block, in scratch memory of the kernel that reads it.

for o in C blocks:
    P[y, x, :] = X[o, y - a, x - b, :] if inside else value         # a block's size, whatever the tensor's
    Y[o] = convolution of P                                         # may be written over X[o]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx

from nnefc.ir.attributes import STAGED
from nnefc.symbolic.dims import dimension

__all__ = ["padded_by_block"]


def padded_by_block(
    compute: Callable[..., te.Tensor], before: Sequence[int], after: Sequence[int], value: int
) -> Callable[..., te.Tensor]:
    """Returns the computation whose first operand, `[N, C blocks, *spatial, block]`, is padded with `value` first.

    Args:
        compute: takes the padded tensor, and the other arguments.
        before, after: widths of the border of each spatial dimension.
    """

    def of_padded(data: te.Tensor, *others: object) -> te.Tensor:
        batch, outer, *sizes, block = data.shape
        spatial = [low + dimension(size) + high for low, size, high in zip(before, sizes, after, strict=True)]

        def element(n: tirx.Var, o: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
            *position, lane = tail
            at = [p - low for p, low in zip(position, before, strict=True)]
            inside = tirx.all(*(part for p, size in zip(at, sizes, strict=True) for part in (p >= 0, p < size)))
            return tirx.if_then_else(inside, data(n, o, *at, lane), tirx.const(value, data.dtype))

        padded = te.compute((batch, outer, *spatial, block), element, name="padded", attrs={STAGED: 2})
        return compute(padded, *others)

    return of_padded

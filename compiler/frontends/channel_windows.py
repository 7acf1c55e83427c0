"""Windows of channels, which Relax has no operator for: in the form that the passes recognize."""

from __future__ import annotations

import math

from tvm import relax

__all__ = ["mean_of_channels"]


def mean_of_channels(builder: relax.BlockBuilder, x: relax.Expr, before: int, after: int) -> relax.Var:
    """The mean over `before` channels, the own one and `after` channels; those that do not exist count as 0.

    An average pooling of the tensor `[N, C, *spatial]` seen as `[N, 1, C, spatial]`.
    """
    shape = tuple(int(extent) for extent in x.ty.shape)
    seen = builder.emit(relax.op.reshape(x, (shape[0], 1, shape[1], math.prod(shape[2:]))))
    size = (before + 1 + after, 1)
    means = relax.op.nn.avg_pool2d(seen, size, padding=[before, 0, after, 0], count_include_pad=True)
    return builder.emit(relax.op.reshape(builder.emit(means), shape))

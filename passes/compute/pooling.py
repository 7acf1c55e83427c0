"""Computes pooling over the spatial dimensions, in row-major or blocked layout."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx

from nnefc.operators.math.reducers import largest, min_or_max_of, minimum_reducer
from nnefc.operators.nn.window import Window
from nnefc.operators.nn.window_elements import window_element
from nnefc.symbolic.dims import dimensions, known_less

__all__ = ["average_pool", "max_pool"]


def _taps(window: Window) -> list[tirx.IterVar]:
    """Returns a reduction axis for each dimension of the window."""
    return [te.reduce_axis((0, size), f"k{axis}") for axis, size in enumerate(window.size)]


def _results(data: te.Tensor, window: Window) -> tuple[int, ...]:
    return window.results(list(dimensions(data.shape[2 : 2 + window.rank])))


def _windowed(
    data: te.Tensor,
    window: Window,
    taps: Sequence[tirx.IterVar],
    index: Sequence[tirx.Var],
    outside: object,
    idempotent: bool = False,
) -> tirx.Expr:
    end = 2 + window.rank
    return window_element(
        lambda positions: data(*index[:2], *positions, *index[end:]),
        window, index[2:end], taps, list(dimensions(data.shape[2:end])), _results(data, window), outside,
        idempotent=idempotent,
    )  # fmt: skip


def max_pool(data: te.Tensor, window: Window, keeps_nan: bool) -> te.Tensor:
    """Returns the maximum under the window. Positions outside of the tensor never count; NaN counts if `keeps_nan`."""
    reduce = min_or_max_of(maximum=True) if keeps_nan else largest
    taps = _taps(window)
    shape = (*data.shape[:2], *_results(data, window), *data.shape[2 + window.rank :])
    low = minimum_reducer(data.dtype)
    return te.compute(shape, lambda *i: reduce(_windowed(data, window, taps, i, low, True), axis=taps), name="pool")


def average_pool(data: te.Tensor, window: Window, padded: Sequence[int] | None) -> te.Tensor:
    """Returns the mean of the values under the window.

    Args:
        padded: sizes up to which padding counts as values of zero (from `-before` on); None: padding does not count.
    """
    rank, taps, results = window.rank, _taps(window), _results(data, window)
    shape = (*data.shape[:2], *results, *data.shape[2 + rank :])
    zero = tirx.const(0, data.dtype)
    total = te.compute(shape, lambda *i: te.sum(_windowed(data, window, taps, i, zero), axis=taps), name="pool")
    sizes = list(dimensions(data.shape[2 : 2 + rank]))
    ends = sizes if padded is None else list(padded)
    starts = [0] * rank if padded is None else [-b for b in window.before]

    def count(position: Sequence[tirx.Var]) -> tirx.Expr:
        product: tirx.Expr = tirx.const(1, "int32")
        for axis, p in enumerate(position):
            size, step, start = window.size[axis], window.dilation[axis], starts[axis]
            first = p * window.stride[axis] - window.before[axis]
            last_output = (results[axis] - 1) * window.stride[axis] - window.before[axis]
            if -window.before[axis] >= start and known_less(last_output + (size - 1) * step, ends[axis]):
                product = product * size
                continue
            skipped = tirx.max(0, tirx.floordiv(start - first + step - 1, step))
            stop = tirx.min(size, tirx.floordiv(ends[axis] - first + step - 1, step))
            product = product * tirx.max(1, stop - skipped)
        return product.astype(data.dtype)

    return te.compute(shape, lambda *i: total(*i) / count(i[2 : 2 + rank]), name="average")

"""Computes local response normalization across channels in float32: `x / (bias + scale · Σ x²)^power`, over a window.

Krizhevsky et al., "ImageNet Classification with Deep Convolutional Neural Networks", 2012, section 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import te, tirx

__all__ = ["ChannelWindow", "normalize_blocked", "normalize_row_major"]


@dataclass(frozen=True)
class ChannelWindow:
    """A window over channels: `before` channels back and `after` forward; channels that do not exist count as 0."""

    before: int
    after: int
    scale: float
    bias: float
    power: float

    def apply(self, x: tirx.Expr, squares: tirx.Expr) -> tirx.Expr:
        """Returns the normalized element, given the sum of squares of its window."""
        base = squares * tirx.const(self.scale, "float32") + tirx.const(self.bias, "float32")
        return x / _to_power(base, self.power)


def _to_power(base: tirx.Expr, power: float) -> tirx.Expr:
    """Raises to a power; powers that are usual here become square roots, which are instructions."""
    match power:
        case 1.0:
            return base
        case 0.5:
            return tirx.sqrt(base)
        case 0.75:
            return tirx.sqrt(base) * tirx.sqrt(tirx.sqrt(base))
    return tirx.power(base, tirx.const(power, "float32"))


def normalize_row_major(data: te.Tensor, response: ChannelWindow) -> te.Tensor:
    """Normalizes a tensor `[N, C, *spatial]`."""
    channels = data.shape[1]
    offset = te.reduce_axis((-response.before, response.after + 1), "offset")

    def sum_of_squares(n: tirx.Var, c: tirx.Var, *position: tirx.Var) -> tirx.Expr:
        inside = tirx.all(c + offset >= 0, c + offset < channels)
        scalar = tirx.if_then_else(inside, data(n, c + offset, *position), tirx.const(0, data.dtype))
        return te.sum(scalar * scalar, axis=[offset])

    sums = te.compute(data.shape, sum_of_squares, name="squares")
    return te.compute(data.shape, lambda *i: response.apply(data(*i), sums(*i)), name="local_response")


def normalize_blocked(data: te.Tensor, response: ChannelWindow, channels: int) -> te.Tensor:
    """Normalizes a tensor `[N, C / b, *spatial, b]` by windows that reach over `b` channels to either side at most.

    What fills up the last block after `channels` counts as 0, whatever it is.

    The squares of one position lie in a line, between two blocks of zeros, so that a window of neighbours can be read
    wherever it starts.
    """
    batch, blocks, *spatial, size = data.shape
    rank = len(spatial)

    def square(n: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        position, index = tail[:rank], tail[rank]
        block = index // size - 1
        filled = [index < size + channels] if channels < int(blocks) * int(size) else []
        inside = tirx.all(block >= 0, block < blocks, *filled)
        scalar = tirx.if_then_else(inside, data(n, block, *position, index % size), tirx.const(0, data.dtype))
        return scalar * scalar

    squares = te.compute((batch, *spatial, (blocks + 2) * size), square, name="squares")

    def element(n: tirx.Var, block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        position, index = tail[:rank], tail[rank]
        window = range(-response.before, response.after + 1)
        elements = [squares(n, *position, (block + 1) * size + index + offset) for offset in window]
        return response.apply(data(n, block, *position, index), sum(elements[1:], elements[0]))

    return te.compute(data.shape, element, name="local_response")

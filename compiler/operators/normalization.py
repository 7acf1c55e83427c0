"""Normalizations."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from nnefc.operators.base import Emitter, Operand, Operator, Shape
from nnefc.operators.pooling import mean_of_channels

__all__ = ["LocalResponse"]


@dataclass(frozen=True)
class LocalResponse(Operator):
    """`x / (bias + alpha * m)^beta`, where m is the mean of the squares over a window of channels.

    Channels that do not exist count as zeros. Krizhevsky, Sutskever, Hinton, "ImageNet Classification with Deep
    Convolutional Neural Networks" (2012); ONNX `LRN`, `torch.nn.functional.local_response_norm`.

    Attributes:
        before, after: how many channels the window has on both sides of the own one.
    """

    before: int
    after: int
    alpha: float
    beta: float
    bias: float

    def shape(self, x: Shape) -> Shape:
        """That of the operand, `[N, C, …]`."""
        return x

    def lower(self, at: Emitter, x: Operand) -> relax.Expr:
        data = at.expr(x)
        squares = at.emit(relax.op.multiply(data, data))
        means = at.emit(mean_of_channels(at, squares, self.before, self.after))
        scaled = at.emit(relax.op.multiply(means, at.expr(at.number(self.alpha, x))))
        base = at.emit(relax.op.add(scaled, at.expr(at.number(self.bias, x))))
        return relax.op.divide(data, at.emit(relax.op.power(base, at.expr(at.number(self.beta, x)))))

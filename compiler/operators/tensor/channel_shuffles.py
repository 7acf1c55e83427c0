"""Moves elements between channels and spatial positions, or between groups of channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nnefc.operators.base import (
    Emitter,
    Operand,
    Operator,
    Shape,
    shape_of,
)
from nnefc.operators.tensor.shape import Reshape, Transpose
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.unification import unify_dims

__all__ = ["ChannelShuffle", "DepthToSpace", "SpaceToDepth"]


class _Shuffle(Operator):
    """A tensor seen in `parts`, these in another `order`, seen in the shape of the result."""

    moves: ClassVar[bool] = True

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        parts, order = self.parts(shape_of(x))
        ordered = ctx.apply(Transpose(order), ctx.reshaped(x, parts))
        return Reshape(self.shape(shape_of(x))).lower(ctx, ordered)

    def parts(self, x: Shape) -> tuple[Shape, Shape]:
        """The parts of the dimensions of a tensor, and the order of these."""
        raise NotImplementedError


@dataclass(frozen=True)
class DepthToSpace(_Shuffle):
    """`block²` channels become blocks of `block × block` pixels of one; of `[…, C, H, W]`.

    Attributes:
        block: the width and height of blocks.
        depth_first: whether the channels of one pixel lie side by side (ONNX `DCR`), or those of one block do (ONNX
            `CRD`, `torch.nn.PixelShuffle`: Shi et al., 2016).
    """

    block: int
    depth_first: bool = False

    def shape(self, x: Shape) -> Shape:
        """Fewer channels, more pixels."""
        *batch, c, h, w = self._checked(x)
        return (*batch, c // self.block**2, h * self.block, w * self.block)

    def parts(self, x: Shape) -> tuple[Shape, Shape]:
        *batch, c, h, w = self._checked(x)
        size, b = self.block, len(batch)
        kept = tuple(range(b))
        if self.depth_first:
            return (*batch, size, size, c // size**2, h, w), (*kept, b + 2, b + 3, b, b + 4, b + 1)
        return (*batch, c // size**2, size, size, h, w), (*kept, b, b + 3, b + 1, b + 4, b + 2)

    def _checked(self, x: Shape) -> Shape:
        if len(x) < 3 or self.block < 1 or not unify_dims(x[-3] % self.block**2, 0):
            raise CompileError(f"blocks of {self.block} do not fit the channels of {list(x)}")
        return x


@dataclass(frozen=True)
class SpaceToDepth(_Shuffle):
    """Blocks of `block × block` pixels become channels: the reverse of `DepthToSpace`, with the same attributes."""

    block: int
    depth_first: bool = False

    def shape(self, x: Shape) -> Shape:
        """More channels, fewer pixels."""
        *batch, c, h, w = self._checked(x)
        return (*batch, c * self.block**2, h // self.block, w // self.block)

    def parts(self, x: Shape) -> tuple[Shape, Shape]:
        *batch, c, h, w = self._checked(x)
        size, b = self.block, len(batch)
        order = (b + 2, b + 4, b, b + 1, b + 3) if self.depth_first else (b, b + 2, b + 4, b + 1, b + 3)
        return (*batch, c, h // size, size, w // size, size), (*range(b), *order)

    def _checked(self, x: Shape) -> Shape:
        if len(x) < 3 or self.block < 1 or not all(unify_dims(size % self.block, 0) for size in x[-2:]):
            raise CompileError(f"blocks of {self.block} do not fit the pixels of {list(x)}")
        return x


@dataclass(frozen=True)
class ChannelShuffle(_Shuffle):
    """The channels of `groups` groups in turns (Zhang et al., "ShuffleNet", 2017), of `[N, C, *spatial]`."""

    groups: int

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand."""
        return x

    def parts(self, x: Shape) -> tuple[Shape, Shape]:
        if len(x) < 3 or self.groups < 1 or not unify_dims(x[1] % self.groups, 0):
            raise CompileError(f"the channels of {list(x)} cannot be shuffled in {self.groups} groups")
        n, c, *tail = x
        return (n, self.groups, c // self.groups, *tail), (0, 2, 1, *range(3, len(x) + 1))

"""Geometry of sliding windows: sizes, strides, dilations, padding, and arithmetic shared by pooling and convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from nnefc.operators.base import Shape
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import ceil_div, greatest, is_known, known_less, may_exceed, minimum

__all__ = ["Padding", "Window", "no_padding", "same_padding"]

Padding: TypeAlias = tuple[tuple[int, int], ...]
"""Positions before and after each dimension; negative amounts cut off."""


def no_padding(rank: int) -> Padding:
    """No padding of `rank` dimensions."""
    return ((0, 0),) * rank


_MAX = (1 << 31) - 1  # TVM's attributes are of 32 bits


@dataclass(frozen=True)
class Window:
    """A window that slides over the last dimensions of a tensor; every tuple has one element for each of them."""

    size: Shape
    stride: Shape
    dilation: Shape
    padding: Padding

    def __post_init__(self) -> None:
        named = {"size": self.size, "stride": self.stride, "dilation": self.dilation, "padding": sum(self.padding, ())}
        for name, numbers in named.items():
            for number in numbers:
                if isinstance(number, int) and abs(number) > _MAX:
                    raise CompileError(f"a {name} of {number:,} is more than a window may have, {_MAX:,}")

    @classmethod
    def of(
        cls,
        size: Sequence[int],
        stride: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        padding: Padding | None = None,
    ) -> Window:
        """A window with strides and dilations of 1 and no padding by default."""
        ones = (1,) * len(size)
        return cls(
            tuple(size),
            ones if stride is None else tuple(stride),
            ones if dilation is None else tuple(dilation),
            no_padding(len(size)) if padding is None else padding,
        )

    @property
    def rank(self) -> int:
        """The number of dimensions that it slides over."""
        return len(self.size)

    @property
    def reach(self) -> Shape:
        """How many positions a window spans, dilation included."""
        return tuple((size - 1) * dilation + 1 for size, dilation in zip(self.size, self.dilation, strict=True))

    @property
    def before(self) -> Shape:
        """Padding before each dimension."""
        return tuple(before for before, _ in self.padding)

    @property
    def after(self) -> Shape:
        """Padding after each dimension."""
        return tuple(after for _, after in self.padding)

    @property
    def widths(self) -> list[int]:
        """The padding in Relax's order: all amounts before, then all amounts after."""
        return [*self.before, *self.after]

    @property
    def pads(self) -> bool:
        """Whether there is any padding."""
        return any(pair != (0, 0) for pair in self.padding)

    def skips(self, sizes: Sequence[int]) -> bool:
        """Returns whether the windows read at most half of the padded positions of dimensions whose sizes are known."""
        if not is_known(*sizes, *self.size, *self.stride, *self.widths):
            return False
        read = math.prod(count * size for count, size in zip(self.results(sizes), self.size, strict=True))
        span = math.prod(size + before + after for size, (before, after) in zip(sizes, self.padding, strict=True))
        return 2 * read <= span

    def padded(self, padding: Padding) -> Window:
        """The window with other padding."""
        return replace(self, padding=padding)

    def unpadded(self) -> Window:
        """The window without padding, for a tensor that has it already."""
        return self.padded(no_padding(self.rank))

    def results(self, sizes: Sequence[int]) -> Shape:
        """Returns how often the window fits each dimension.

        Raises:
            CompileError: the window is larger than the padded tensor.
        """
        found = []
        axes = zip(sizes, self.reach, self.stride, self.padding, strict=True)
        for axis, (size, reach, stride, (before, after)) in enumerate(axes):
            span = size + before + after
            if known_less(span, reach):
                raise self._misfit(axis, sizes)
            found.append((span - reach) // stride + 1)
        return tuple(found)

    def _misfit(self, axis: int, sizes: Sequence[int]) -> CompileError:
        before, after = self.padding[axis]
        return CompileError(
            f"the window covers {self.reach[axis]} positions, but dimension {axis} of {list(sizes)} has "
            f"{sizes[axis] + before + after} with its padding ({before}, {after})"
        )

    def covering(self, sizes: Sequence[int]) -> Window:
        """The window with as much more padding after each dimension as a last window that is not whole needs.

        This is what ONNX and PyTorch call the mode "ceil": the last window begins inside the tensor or its padding
        before; one that would begin behind them is left out. It may be the only one.

        Raises:
            CompileError: not even such a window begins inside.
        """
        padding = []
        axes = zip(sizes, self.reach, self.stride, self.padding, strict=True)
        for axis, (size, reach, stride, (before, after)) in enumerate(axes):
            last = ceil_div(size + before + after - reach, stride)
            if known_less(last, 0):
                raise self._misfit(axis, sizes)
            if is_known(last, size, before):
                last -= last * stride >= size + before
            else:
                last = minimum(last, (size + before - 1) // stride)
            padding.append((before, greatest(after, last * stride + reach - before - size)))
        return self.padded(tuple(padding))

    def spread(self, sizes: Sequence[int]) -> Shape:
        """The sizes of the transposed operation's result: those over which `sizes` windows lie."""
        axes = zip(sizes, self.stride, self.reach, self.padding, strict=True)
        return tuple((size - 1) * stride + reach - before - after for size, stride, reach, (before, after) in axes)

    def positions(self, index: Sequence[Any], offsets: Sequence[Any]) -> list[Any]:
        """Return the position of the element `offsets` of the window `index`, which may lie outside of the tensor."""
        axes = zip(index, self.stride, offsets, self.dilation, self.before, strict=True)
        return [i * stride + offset * dilation - before for i, stride, offset, dilation, before in axes]

    def inside(self, positions: Sequence[Any], sizes: Sequence[int], results: Sequence[int]) -> list[Any]:
        """The conditions under which positions are in the tensor: only those that can fail for so many windows."""
        conditions = []
        axes = zip(positions, sizes, results, self.stride, self.reach, self.before, strict=True)
        for position, size, count, stride, reach, before in axes:
            if may_exceed(before, 0):
                conditions.append(position >= 0)
            if may_exceed((count - 1) * stride + reach - before, size):
                conditions.append(position < size)
        return conditions


def same_padding(window: Window, sizes: Sequence[int], results: Sequence[int], upper: bool = True) -> Padding:
    """The padding with which the window gives `results` for `sizes`; an odd amount has more after (`upper`).

    The total is never negative.
    """
    padding = []
    for size, count, stride, reach in zip(sizes, results, window.stride, window.reach, strict=True):
        total = greatest(0, (count - 1) * stride + reach - size)
        less, more = total // 2, total - total // 2
        padding.append((less, more) if upper else (more, less))
    return tuple(padding)

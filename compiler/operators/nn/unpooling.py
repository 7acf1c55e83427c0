"""Transposes of pooling, fold and unfold, and gathers at the indices that a pooling has found."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import relax, te, tirx

from nnefc.operators.base import (
    Emitter,
    Operand,
    Operator,
    Shape,
    check_size,
    dtype_of,
    is_empty,
    numpy_dtype,
    shape_of,
    zeros,
)
from nnefc.operators.nn.pooling import window_counts
from nnefc.operators.nn.window import Window
from nnefc.operators.statements import T, each, looped
from nnefc.operators.tensor.padding import FoldPadding, Pad
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import expression
from nnefc.symbolic.unification import unify_shapes

__all__ = ["Fold", "MaxUnpool", "SampleWindows", "SpreadWindows", "Unfold"]

_ZERO = tirx.const(0, "int64")


@dataclass(frozen=True)
class SampleWindows(Operator):
    """The element of each window at a position in it, numbered row by row. NNEF `sample`.

    Positions come from the data: whatever they are, nothing outside the tensor is read; there it reads zero.

    Attributes:
        window: over the last dimensions.
        border: what positions in the padding read: a mode of `Pad`.
    """

    window: Window
    border: str = "constant"

    def shape(self, x: Shape, index: Shape) -> Shape:
        """Return the shape of the positions."""
        return index

    def lower(self, ctx: Emitter, x: Operand, index: Operand) -> relax.Expr:
        """`index` is of integers."""
        window = self.window
        if self.border != "constant":
            x = ctx.bound(Pad(window.padding, self.border).lower(ctx, x))
            window = window.unpadded()
        lead, sizes = len(shape_of(x)) - window.rank, shape_of(x)[len(shape_of(x)) - window.rank :]

        def element(tensors: tuple[Any, ...], at_: tuple[Any, ...]) -> Any:
            positions = window.positions(at_[lead:], _unravel(tensors[1](*at_), window.size))
            inside = [tirx.all(slot >= 0, slot < size) for slot, size in zip(positions, sizes, strict=True)]
            return tirx.if_then_else(tirx.all(*inside), tensors[0](*at_[:lead], *positions), tirx.const(0, dtype_of(x)))

        return ctx.elements(shape_of(index), element, x, index, name="sample")


def _unravel(position: tirx.Expr, size: Shape) -> list[tirx.Expr]:
    """The offsets along every axis of a row-major position in a window."""
    offsets: list[tirx.Expr] = []
    for length in reversed(size):
        offsets.insert(0, tirx.floormod(position, length))
        position = tirx.floordiv(position, length)
    return offsets


@dataclass(frozen=True)
class SpreadWindows(Operator):
    """A sum into windows: each element is added to all positions of its window, or to one of them. NNEF `debox`,
    `desample`.

    Attributes:
        window: over all dimensions.
        result: the shape of the result.
        border: where the padding's elements go: a mode of `Pad`.
        shares: None, or how each element is divided among the positions of its window: "all" of them, or those
            "inside".
    """

    window: Window
    result: Shape
    border: str = "constant"
    shares: str | None = None

    def shape(self, x: Shape, index: Shape | None = None) -> Shape:
        """`result`."""
        return self.result

    def lower(self, ctx: Emitter, x: Operand, index: Operand | None = None) -> Operand:
        """Emit the sums. With `index`, each element is added to that row-major position of its window only."""
        x = self._shared(ctx, x)
        operands = [x] if index is None else [x, index]
        if self.border == "constant" or not self.window.pads:
            return ctx.compute(self._spread(self.window, self.result), *operands, name="spread")
        axes = zip(self.result, self.window.padding, strict=True)
        padded = tuple(size + before + after for size, (before, after) in axes)
        whole = ctx.emit(ctx.compute(self._spread(self.window.unpadded(), padded), *operands, name="spread"))
        return FoldPadding(self.window.padding, self.border).lower(ctx, whole)

    def _shared(self, ctx: Emitter, x: Operand) -> Operand:
        if self.shares is None:
            return x
        if self.shares == "all":
            return ctx.emit(relax.op.divide(ctx.expr(x), ctx.expr(ctx.number(math.prod(self.window.size), x))))
        counts = window_counts(self.window, self.result, shape_of(x), padding=False)
        return ctx.emit(relax.op.divide(ctx.expr(x), ctx.expr(counts.astype(dtype_of(x)))))

    def _spread(self, window: Window, shape: Shape) -> Callable[..., te.Tensor]:
        """Gather at every position of `shape` what the windows write there."""

        def spread(x: te.Tensor, *index: te.Tensor) -> te.Tensor:
            offsets = [te.reduce_axis((0, size), f"offset{axis}") for axis, size in enumerate(window.size)]

            def element(*at: tirx.Var) -> tirx.Expr:
                positions, hits = _sources(window, at, offsets, x.shape)
                zero = tirx.const(0, x.dtype)
                value = x(*positions)
                if index:
                    position: Any = tirx.const(0, "int32")
                    for size, offset in zip(window.size, offsets, strict=True):
                        position = position * size + offset.var.astype("int32")
                    here = index[0](*positions) == position.astype(index[0].dtype)
                    value = tirx.if_then_else(here, value, zero)
                return te.sum(tirx.if_then_else(tirx.all(*hits), value, zero), axis=offsets)

            return te.compute(shape, element, name="spread")

        return spread


def _sources(
    window: Window, at: Sequence[Any], offsets: Sequence[Any], sizes: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Returns the windows that write at a position with an offset, and the conditions that they exist."""
    positions, hits = [], []
    axes = zip(at, offsets, window.stride, window.dilation, window.before, sizes, strict=True)
    for i, offset, stride, dilation, before, size in axes:
        start = i + before - offset * dilation
        positions.append(tirx.floordiv(start, stride))
        hits.append(tirx.all(start >= 0, tirx.floormod(start, stride) == 0, positions[-1] < size))
    return positions, hits


@dataclass(frozen=True)
class MaxUnpool(Operator):
    """A tensor with each element at the position where a pooling found it, and zeros elsewhere. ONNX `MaxUnpool`.

    Of several elements at one position the last stays. What lies outside of the element's own channel is left out.

    Attributes:
        sizes: the spatial sizes that positions count in, after batch and channels.
        result: the shape of the result; a larger one keeps each element's coordinates.
    """

    sizes: Shape
    result: Shape

    def shape(self, x: Shape, index: Shape) -> Shape:
        """`result`."""
        if len(x) < 3 or not unify_shapes(index, x):
            raise CompileError(f"the indices {list(index)} do not fit the input {list(x)}")
        if len(self.result) != len(x) or not unify_shapes(self.result[:2], x[:2]):
            raise CompileError(f"'output_shape' {list(self.result)} does not fit the input {list(x)}")
        return self.result

    def lower(self, ctx: Emitter, x: Operand, index: Operand) -> Operand:
        """Scattered: the elements of a channel are written one after the other."""
        shape = shape_of(x)
        target = self.shape(shape, shape_of(index))
        if is_empty((*shape, *target)):
            return zeros(target, ctx.number(0, x).dtype)
        planes, plane, elements, room = (math.prod(part) for part in (shape[:2], self.sizes, shape[2:], target[2:]))

        def write(x: Any, index: Any, out: Any) -> None:
            with each(planes, planes * room) as line, T.serial(0, room) as slot:
                out[line * room + slot] = tirx.const(0, out.dtype)
            with each(planes, planes * elements * 4) as line, T.serial(0, elements) as element:
                position = T.bind(index[line * elements + element].astype("int64") - line * plane)
                with T.If(tirx.all(position >= 0, position < plane)), T.Then():
                    self._position(out, line * room, position, target[2:], x[line * elements + element])

        return looped(ctx, write, [x, index], [(target, dtype_of(x))], "max_unpool")[0]

    def _position(self, out: Any, first: Any, position: Any, target: Shape, value: Any) -> None:
        """Write an element to a position that counts in `sizes`, in an image of the sizes `target`."""
        if target == self.sizes:
            out[first + position] = value
            return
        positions = _unravel(position, self.sizes)
        here: Any = _ZERO
        for slot, size in zip(positions, target, strict=True):
            here = here * size + slot
        inside = [slot < size for slot, size in zip(positions, target, strict=True)]
        with T.If(tirx.all(*inside)), T.Then():
            out[first + here] = value


@dataclass(frozen=True)
class Unfold(Operator):
    """Windows of an image as columns: `[N, C, *image]` to `[N, C · elements, windows]`. `torch.nn.functional.unfold`.

    Attributes:
        window: over the image.
    """

    window: Window
    moves: ClassVar[bool] = True

    def shape(self, x: Shape) -> Shape:
        """Return `[N, C · elements of a window, windows]`."""
        if len(x) != 2 + self.window.rank:
            raise CompileError(f"{list(x)} is no batch of images of {self.window.rank} dimensions")
        elements, windows = math.prod(self.window.size), math.prod(self.window.results(x[2:]))
        return check_size((x[0], x[1] * elements, windows))

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape, window, image = self.shape(shape_of(x)), self.window, shape_of(x)[2:]
        if is_empty(shape):
            return zeros(shape, numpy_dtype(dtype_of(x)))
        counts, elements = window.results(image), math.prod(window.size)

        def element(tensors: tuple[te.Tensor, ...], slot: tuple[tirx.Var, ...]) -> tirx.Expr:
            n, row, column = slot
            offset: Any = tirx.floormod(row, elements)
            index: list[Any] = []
            inside: list[Any] = []
            for axis in reversed(range(window.rank)):
                begin = tirx.floormod(column, expression(counts[axis])) * window.stride[axis] - window.before[axis]
                index.insert(0, begin + tirx.floormod(offset, window.size[axis]) * window.dilation[axis])
                inside += [index[0] >= 0, index[0] < expression(image[axis])]
                offset = tirx.floordiv(offset, window.size[axis])
                column = tirx.floordiv(column, expression(counts[axis]))
            value = tensors[0](n, tirx.floordiv(row, elements), *index)
            return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, value.ty.dtype)) if window.pads else value

        return ctx.elements(shape, element, x, name="im2col")


@dataclass(frozen=True)
class Fold(Operator):
    """Columns added to the image that they were cut from: `[N, C · elements, windows]` to `[N, C, *image]`. ONNX
    `Col2Im`.

    Attributes:
        window: over the image.
        image: its sizes.
    """

    window: Window
    image: Shape

    def shape(self, x: Shape) -> Shape:
        """The image's, for each batch element and channel."""
        elements, windows = math.prod(self.window.size), math.prod(self.window.results(self.image))
        if len(x) != 3 or x[1] % elements or x[2] != windows:
            raise CompileError(f"columns {list(x)} do not make an image of {list(self.image)}")
        return (x[0], x[1] // elements, *self.image)

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        """Gathered: each pixel adds the elements of all columns that hold it."""
        shape, window, counts = self.shape(shape_of(x)), self.window, self.window.results(self.image)

        def fold(x: te.Tensor) -> te.Tensor:
            offsets = [te.reduce_axis((0, size), f"offset{axis}") for axis, size in enumerate(window.size)]

            def element(n: tirx.Var, c: tirx.Var, *index: tirx.Var) -> tirx.Expr:
                inside: list[Any] = []
                row: Any = c
                column: Any = 0
                for axis, i in enumerate(index):
                    start = i + window.before[axis] - offsets[axis] * window.dilation[axis]
                    slot = tirx.floordiv(start, window.stride[axis])
                    inside += [start >= 0, tirx.floormod(start, window.stride[axis]) == 0, slot < counts[axis]]
                    row, column = row * window.size[axis] + offsets[axis], column * counts[axis] + slot
                return te.sum(
                    tirx.if_then_else(tirx.all(*inside), x(n, row, column), tirx.const(0, x.dtype)), axis=offsets
                )

            return te.compute(shape, element, name="col2im")

        return ctx.compute(fold, x, name="col2im")

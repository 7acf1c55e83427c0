"""Pads with constants, edge values, reflections or wrap-around; and the transpose of padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from tvm import relax, te, tirx

from nnefc.operators.base import (
    Emitter,
    Operand,
    Operator,
    Shape,
    check_size,
    check_table,
    dtype_of,
    is_empty,
    numpy_dtype,
    shape_of,
    zeros,
)
from nnefc.operators.nn.window import Padding
from nnefc.operators.tensor.shape import Slice
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import expression, greatest, is_known, known_less, may_exceed, minimum

__all__ = ["PADDING_MODES", "FoldPadding", "Pad", "periodic_source"]

PADDING_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
"""The values of padding: a constant, the nearest element, the tensor mirrored at the border's element or behind
it, the other end. The names are those of `numpy.pad`."""

_NATIVE = frozenset({"float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32"})
"""Types whose constants Relax's padding, which takes a real number, has exactly."""


@dataclass(frozen=True)
class Pad(Operator):
    """`numpy.pad` of all dimensions; negative amounts cut off before the rest is padded.

    Attributes:
        padding: positions before and after each dimension.
        mode: see `PADDING_MODES`.
        value: what the mode "constant" writes, unless an operand says so.
    """

    padding: Padding
    mode: str = "constant"
    value: float = 0.0
    moves: ClassVar[bool] = True

    def shape(self, x: Shape, fill: Shape = ()) -> Shape:
        """The sizes with their padding."""
        if any(known_less(size + before + after, 0) for size, (before, after) in zip(x, self.padding, strict=True)):
            raise CompileError(f"the padding leaves nothing of the shape {list(x)}")
        return check_size([size + before + after for size, (before, after) in zip(x, self.padding, strict=True)])

    def lower(self, ctx: Emitter, x: Operand, fill: Operand | None = None) -> Operand:
        """`fill`, without axes, is the constant where it is not known."""
        shape = self.shape(shape_of(x))
        self._check_mode(shape_of(x))
        if is_empty(shape):
            return zeros(shape, numpy_dtype(dtype_of(x)))
        x = _cropped(ctx, x, self.padding)
        padding = tuple((greatest(before, 0), greatest(after, 0)) for before, after in self.padding)
        if not any(before or after for before, after in padding):
            return x
        if self.mode == "constant":
            if isinstance(fill, np.ndarray):
                return Pad(padding, "constant", fill.item()).lower(ctx, x)
            return self._filled(ctx, x, fill, padding, shape)
        sizes = shape_of(x)

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            axes = list(zip(index, sizes, padding, strict=True))
            sources = [i if pair == (0, 0) else _source(i - pair[0], n, pair, self.mode) for i, n, pair in axes]
            return tirx.if_then_else(_inside(axes), tensors[0](*_moved(axes)), tensors[0](*sources))

        return ctx.elements(shape, element, x, name="pad")

    def _check_mode(self, x: Shape) -> None:
        for size, (before, after) in zip(x, self.padding, strict=True):
            left = size + minimum(before, 0) + minimum(after, 0)
            if self.mode != "constant" and may_exceed(greatest(before, after), 0) and not may_exceed(left, 0):
                raise CompileError(f"the padding '{self.mode}' has nothing to repeat in the shape {list(x)}")

    def _filled(self, ctx: Emitter, x: Operand, fill: relax.Expr | None, padding: Padding, shape: Shape) -> relax.Expr:
        dtype = dtype_of(x)
        if fill is None and dtype in _NATIVE and is_known(*(amount for pair in padding for amount in pair)):
            widths = [amount for pair in padding for amount in pair]
            return relax.op.nn.pad(ctx.expr(x), widths, "constant", float(self.value))
        sizes = shape_of(x)

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            axes = list(zip(index, sizes, padding, strict=True))
            value = tensors[1]() if fill is not None else tirx.const(self.value, dtype)
            return tirx.if_then_else(_inside(axes), tensors[0](*_moved(axes)), value)

        return ctx.elements(shape, element, x, *([] if fill is None else [fill]), name="pad")


_Axis: TypeAlias = tuple[Any, Any, tuple[int, int]]
"""Maps an index of the padded tensor along an axis, with the tensor's size and padding there."""


def _moved(axes: Sequence[_Axis]) -> list[Any]:
    """The same position in the tensor without padding."""
    return [i - before for i, _, (before, _) in axes]


def _inside(axes: Sequence[_Axis]) -> Any:
    """Returns whether a position is one of the tensor's own."""
    inside = []
    for i, size, (before, after) in axes:
        inside += [i >= before] if before else []
        inside += [i - before < size] if after else []
    return tirx.all(*inside)


def _source(position: tirx.Expr, size: int, pair: tuple[int, int], mode: str) -> tirx.Expr:
    """Returns the source index of an index that may be outside of the tensor."""
    behind = int(mode == "symmetric")  # the border's own element is repeated
    if mode not in ("reflect", "symmetric") or may_exceed(greatest(*pair), size - 1 + behind):
        return periodic_source(position, expression(size), mode)
    # mirrored once on each side
    below = tirx.Select(position < 0, -position - behind, position)
    return tirx.Select(below >= size, 2 * (size - 1) + behind - below, below)


def periodic_source(position: tirx.Expr, size: Any, mode: str) -> tirx.Expr:
    """Returns the source index of any index, of a dimension of `size` > 0: 0 … size - 1.

    Safe to compute, with any result, where `size` is not positive.

    Raises:
        CompileError: there is no such mode.
    """
    if mode == "edge":
        return tirx.max(tirx.min(position, size - 1), 0)
    if mode == "wrap":
        return tirx.floormod(position, tirx.max(size, 1))
    if mode not in ("reflect", "symmetric"):
        raise CompileError(f"there is no padding mode '{mode}'", hint=f"known are {', '.join(PADDING_MODES)}")
    behind = int(mode == "symmetric")
    period = 2 * (size - 1 + behind)
    folded = tirx.floormod(position, tirx.max(period, 1))  # a period of 0, of one element
    return tirx.min(folded, tirx.max(period - behind - folded, 0))


def _cropped(ctx: Emitter, x: Operand, padding: Padding) -> Operand:
    """Crops a tensor by negative amounts of padding."""
    parts = {}
    for axis, (size, (before, after)) in enumerate(zip(shape_of(x), padding, strict=True)):
        if known_less(0, -before) or known_less(0, -after) or not is_known(before, after):
            first = greatest(0, -before)
            parts[axis] = (first, size - first + minimum(0, after), 1)
    cropped: Operand = ctx.apply(Slice(parts), x)
    return cropped


@dataclass(frozen=True)
class FoldPadding(Operator):
    """The transpose of `Pad`: a tensor without its padding, whose values are added where padding would read them.

    For constants the padding is cut off. Where amounts are negative, zeros come back.
    """

    padding: Padding
    mode: str = "constant"

    def shape(self, x: Shape) -> Shape:
        """The sizes without their padding."""
        return tuple(size - before - after for size, (before, after) in zip(x, self.padding, strict=True))

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        kept = tuple((greatest(before, 0), greatest(after, 0)) for before, after in self.padding)
        if self.mode == "constant":
            x = _cropped(ctx, x, tuple((-before, -after) for before, after in kept))
        else:
            for axis, pair in enumerate(kept):
                if any(pair):
                    size = shape_of(x)[axis] - sum(pair)
                    sources = _sources(size, pair, self.mode)
                    x = ctx.emit(ctx.compute(_fold_te(axis, size), x, sources, name="fold_padding"))
        return Pad(tuple((max(-before, 0), max(-after, 0)) for before, after in self.padding)).lower(ctx, x)


def _sources(size: int, pair: tuple[int, int], mode: str) -> np.ndarray:
    """Return, for every padded position along an axis, the position inside that it copies, int32."""
    check_table(size + sum(pair))
    # NumPy's own padding of the indices 0 … size - 1, also where it mirrors more than once.
    return np.pad(np.arange(size, dtype=np.int32), pair, mode=mode)  # type: ignore[call-overload,no-any-return]


def _fold_te(axis: int, size: int) -> Callable[[te.Tensor, te.Tensor], te.Tensor]:
    def fold(x: te.Tensor, sources: te.Tensor) -> te.Tensor:
        padded = te.reduce_axis((0, x.shape[axis]), "padded")

        def element(*index: tirx.Var) -> tirx.Expr:
            position = (*index[:axis], padded, *index[axis + 1 :])
            here = sources(padded) == index[axis].astype("int32")
            return te.sum(tirx.if_then_else(here, x(*position), tirx.const(0, x.dtype)), axis=padded)

        shape: Sequence[Any] = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        return te.compute(shape, element, name="fold_padding")

    return fold

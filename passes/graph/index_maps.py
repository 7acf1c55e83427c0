"""Derives the index map of operators that only move or repeat elements of their operand.

y = permute_dims(reshape(x[4, 64], [4, 8, 8]), [1, 0, 2])      y[h, l, e] = x[l, h * 8 + e]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax, tirx

from nnefc.passes.graph.rewriter import is_call, shape_of
from nnefc.symbolic.dims import Dimension, expression, is_known

__all__ = ["SHAPES", "Index", "Moves"]

Index = tuple[tirx.Expr, ...]
_Piece = tuple[tirx.Expr, Dimension]

SHAPES = ("reshape", "expand_dims", "squeeze", "flatten")
"""Operators that change a tensor's shape and keep the order of its elements."""


class Moves:
    """Follows elements backwards through the reshapes and transpositions of a function.

    Where several indices became one, they are remembered: `(h % 3) * l + i` is the two again when it is divided by l.
    """

    def __init__(self, definitions: Mapping[relax.Var, relax.Expr]) -> None:
        self._definitions = definitions
        self._joined: list[tuple[tirx.Expr, list[_Piece]]] = []

    def before(self, value: relax.Expr | None, index: Index) -> tuple[relax.Expr, Index] | None:
        """Returns the operand whose elements `value` moves, and the index in it of the element at `index`; None for
        other values.
        """
        if isinstance(value, relax.TupleGetItem):
            split = self._definitions.get(value.tuple_value)
            return _of_part(split, value.index, index) if is_call(split, "split") else None
        if is_call(value, *SHAPES):
            position = self.reshaped(index, shape_of(value), shape_of(value.args[0]))
        elif is_call(value, *_MOVES):
            position = _MOVES[value.op.name[6:]](value, index)
        else:
            return None
        return None if position is None else (value.args[0], position)

    def after(self, value: relax.Expr, index: Index) -> Index | None:
        """Returns the index in `value`, a reshape or transposition of its operand, of the element at `index`."""
        if is_call(value, *SHAPES):
            return self.reshaped(index, shape_of(value.args[0]), shape_of(value))
        if is_call(value, "permute_dims"):
            axes, rank = value.attrs.axes, len(index)
            return index[::-1] if axes is None else tuple(index[int(axis) % rank] for axis in axes)
        return None

    def reshaped(self, index: Index, shape: Sequence[Dimension], target: Sequence[Dimension]) -> Index | None:
        """Returns the index in a tensor of the shape `target` of the element that is at `index` of the same elements in
        `shape`.

        None where the axes of one are not made of parts of those of the other.
        """
        waiting = [piece for piece in zip(index, shape, strict=True) if piece[1] != 1]
        waiting.reverse()
        made = []
        for size in target:
            pieces = self._pieces(waiting, size)
            if pieces is None:
                return None
            made.append(self._as_one(pieces))
        return tuple(made) if not waiting else None

    def _pieces(self, waiting: list[_Piece], wanted: Dimension) -> list[_Piece] | None:
        """Takes indices from the end of `waiting` that together have so many values."""
        taken: list[_Piece] = []
        have: Dimension = 1
        while have != wanted:
            if not waiting:
                return None
            position, size = waiting.pop()
            if not _divides(have * size, wanted):
                known = next((pieces for expr, pieces in self._joined if expr.same_as(position)), None)
                if known is not None:
                    waiting.extend(reversed(known))
                    continue
                if not _divides(have, wanted) or not _divides(wanted // have, size):
                    return None
                part = wanted // have
                tail = size // part
                waiting.append((position % expression(tail), tail))
                position, size = position // expression(tail), part
            taken.append((position, size))
            have = have * size
        return taken

    def _as_one(self, pieces: list[_Piece]) -> tirx.Expr:
        if not pieces:
            return tirx.IntImm("int64", 0)
        (value, _), *others = pieces
        for position, size in others:
            value = value * expression(size) + position
        if others:
            self._joined.append((value, pieces))
        return value


def _divides(part: Dimension, size: Dimension) -> bool:
    """Whether one size is known to be a multiple of another."""
    if is_known(part) and part == 0:
        return False
    tail = size % part
    return is_known(tail) and tail == 0


def _permuted(call: relax.Call, index: Index) -> Index:
    rank = len(index)
    axes = call.attrs.axes
    order = range(rank - 1, -1, -1) if axes is None else [int(axis) % rank for axis in axes]
    position = list(index)
    for own, axis in zip(index, order, strict=True):
        position[axis] = own
    return tuple(position)


def _broadcast(call: relax.Call, index: Index) -> Index:
    own = shape_of(call.args[0])
    zero = tirx.IntImm("int64", 0)
    return tuple(
        zero if size == 1 else position for size, position in zip(own, index[len(index) - len(own) :], strict=True)
    )


def _tiled(call: relax.Call, index: Index) -> Index:
    own = shape_of(call.args[0])
    wide = shape_of(call)[len(index) - len(own) :]
    positions = zip(index[len(index) - len(own) :], own, wide, strict=True)
    return tuple(position if size == whole else position % expression(size) for position, size, whole in positions)


def _repeated(call: relax.Call, index: Index) -> Index | None:
    if call.attrs.axis is None:
        return None
    axis = int(call.attrs.axis) % len(index)
    return (*index[:axis], index[axis] // int(call.attrs.repeats), *index[axis + 1 :])


def _sliced(call: relax.Call, index: Index) -> Index | None:
    if len(call.args) < 5 or not all(isinstance(arg, relax.Tuple) for arg in call.args[1:]):
        return None
    numbers = [[_number(value) for value in arg.fields] for arg in call.args[1:5]]
    known = [[value for value in values if value is not None and value >= 0] for values in numbers]
    axes, begin, _, steps = known
    if any(len(known[n]) < len(numbers[n]) for n in (0, 1, 3)):
        return None
    position = list(index)
    for axis, first, step in zip(axes, begin, steps, strict=True):
        position[axis] = position[axis] * step + first
    return tuple(position)


def _of_part(split: Any, number: int, index: Index) -> tuple[relax.Expr, Index] | None:
    data, attrs = split.args[0], split.attrs
    axis = int(attrs.axis) % len(index)
    if isinstance(attrs.indices_or_sections, int | tirx.IntImm):
        size = shape_of(data)[axis]
        sections = int(attrs.indices_or_sections)
        first: Dimension | None = size // sections * number if _divides(sections, size) else None
    else:
        first = 0 if number == 0 else _number(attrs.indices_or_sections[number - 1])
    if first is None:
        return None
    return data, (*index[:axis], index[axis] + expression(first), *index[axis + 1 :])


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | tirx.IntImm) else None


_MOVES: dict[str, Callable[[relax.Call, Index], Index | None]] = {
    "permute_dims": _permuted,
    "broadcast_to": _broadcast,
    "tile": _tiled,
    "repeat": _repeated,
    "strided_slice": _sliced,
}

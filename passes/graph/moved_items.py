"""Where the items of a tensor come from that an operation only moves or repeats.

y = permute_dims(reshape(x[4, 64], [4, 8, 8]), [1, 0, 2])      y[h, l, e] = x[l, h * 8 + e]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax, tirx

from nnefc.passes.graph.rewriter import is_call, shape_of
from nnefc.sizes import Dimension, expression, is_known

__all__ = ["Index", "before_moving", "reshaped_index"]

Index = tuple[tirx.Expr, ...]


def before_moving(
    value: relax.Expr, index: Index, definitions: Mapping[relax.Var, relax.Expr]
) -> tuple[relax.Expr, Index] | None:
    """The operand of which `value` only moves items, and where in it the item at `index` was; None for others."""
    if isinstance(value, relax.TupleGetItem):
        split = definitions.get(value.tuple_value)
        return _of_part(split, value.index, index) if is_call(split, "split") else None
    if not is_call(value, *_MOVES):
        return None
    place = _MOVES[value.op.name[6:]](value, index)
    return None if place is None else (value.args[0], place)


def reshaped_index(index: Index, shape: Sequence[Dimension], target: Sequence[Dimension]) -> Index | None:
    """The place in a tensor of the shape `target` of the item that is at `index` of the same items in `shape`.

    None where the axes of one are not made of parts of those of the other.
    """
    waiting = [(place, size) for place, size in zip(index, shape, strict=True) if size != 1]
    waiting.reverse()
    made: list[tirx.Expr] = []
    for wanted in target:
        value, have = None, 1
        while have != wanted:
            if not waiting:
                return None
            place, size = waiting.pop()
            if not _divides(have * size, wanted):
                part = _quotient(wanted, have)
                if part is None or not _divides(part, size):
                    return None
                rest = size // part
                waiting.append((place % expression(rest), rest))
                place, size = place // expression(rest), part
            value = place if value is None else value * expression(size) + place
            have = have * size
        made.append(tirx.IntImm("int64", 0) if value is None else value)
    return tuple(made) if not waiting else None


def _divides(part: Dimension, size: Dimension) -> bool:
    """Whether one size is known to be a multiple of another."""
    if is_known(part) and part == 0:
        return False
    rest = size % part
    return is_known(rest) and rest == 0


def _quotient(size: Dimension, part: Dimension) -> Dimension | None:
    return size // part if _divides(part, size) else None


def _permuted(call: relax.Call, index: Index) -> Index:
    rank = len(index)
    axes = call.attrs.axes
    order = range(rank - 1, -1, -1) if axes is None else [int(axis) % rank for axis in axes]
    place = list(index)
    for own, axis in zip(index, order, strict=True):
        place[axis] = own
    return tuple(place)


def _reshaped(call: relax.Call, index: Index) -> Index | None:
    return reshaped_index(index, shape_of(call), shape_of(call.args[0]))


def _broadcast(call: relax.Call, index: Index) -> Index:
    own = shape_of(call.args[0])
    zero = tirx.IntImm("int64", 0)
    return tuple(zero if size == 1 else place for size, place in zip(own, index[len(index) - len(own) :], strict=True))


def _tiled(call: relax.Call, index: Index) -> Index:
    own = shape_of(call.args[0])
    wide = shape_of(call)[len(index) - len(own) :]
    places = zip(index[len(index) - len(own) :], own, wide, strict=True)
    return tuple(place if size == whole else place % expression(size) for place, size, whole in places)


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
    place = list(index)
    for axis, first, step in zip(axes, begin, steps, strict=True):
        place[axis] = place[axis] * step + first
    return tuple(place)


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
    "reshape": _reshaped,
    "expand_dims": _reshaped,
    "squeeze": _reshaped,
    "flatten": _reshaped,
    "broadcast_to": _broadcast,
    "tile": _tiled,
    "repeat": _repeated,
    "strided_slice": _sliced,
}

"""Matches operators that together permute whole channels, and replaces them by one gather of channels.

    a = reshape(x, [N, 4, C / 4, H, W])
    b = permute_dims(a, [0, 2, 1, 3, 4])     →     c = take(x, [0, C / 4, C / 2, 3 C / 4, 1, C / 4 + 1, …], axis=1)
    c = reshape(b, [N, C, H, W])

This is the channel shuffle between grouped convolutions (Zhang et al., 2017), which needs no time in blocked layout.
Parts of shuffled channels (Ma et al., 2018) are gathers too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax, tirx

from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.symbolic.dims import is_known, may_exceed

__all__ = ["fold_permutations"]

_LONGEST = 8  # operations that are looked at together
_LARGEST = 1 << 24  # elements of a tensor whose way is followed

_Step = Callable[[np.ndarray], np.ndarray]


def fold_permutations(mod: tvm.IRModule) -> tvm.IRModule:
    """Replaces chains of reshapes, transposes and slices that move whole channels by `take`."""
    return relax.transform.DeadCodeElimination()(_Folder(mod).transform())


class _Folder(Rewriter):
    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not isinstance(var.ty, relax.TensorType):
            return call
        source, steps, transposed = self._way_to(call, shape_of(var))
        if not transposed or len(steps) < 3 or not _may_be_gathered(source, var):
            return call
        channels = _gathered_channels(shape_of(source), steps)
        return call if channels is None else relax.op.take(source, constant(channels), axis=1)

    def _way_to(self, result: relax.Expr, shape: tuple[int, ...]) -> tuple[relax.Expr, list[_Step], bool]:
        """Follows the elements of `result` to their source; returns the source, the steps, and whether any step
        transposes.
        """
        steps: list[_Step] = []
        transposed = False
        expr, definition = result, result
        while len(steps) < _LONGEST:
            found = self._step_to(definition, shape)
            if found is None:
                break
            transposed = transposed or is_call(definition, "permute_dims", "take")
            expr, step = found
            steps.insert(0, step)
            next_definition = self.definition(expr)
            if next_definition is None or not isinstance(expr.ty, relax.TensorType):
                break
            definition, shape = next_definition, shape_of(expr)
        return expr, steps, transposed

    def _step_to(self, definition: relax.Expr, shape: tuple[int, ...]) -> tuple[relax.Expr, _Step] | None:
        """Returns the operand and the move of a tensor, if the tensor only moves elements."""
        if isinstance(definition, relax.TupleGetItem):
            split = self.definition(definition.tuple_value)
            if not is_call(split, "split"):
                return None
            axis = int(split.attrs.axis)
            parts = [int(part.shape[axis]) for part in definition.tuple_value.ty.fields]
            begin = sum(parts[: definition.index])
            return split.args[0], _slicing([axis], [begin], [begin + parts[definition.index]], [1])
        if not isinstance(definition, relax.Call) or not isinstance(definition.op, tvm.ir.Op):
            return None
        step_of = _STEPS.get(definition.op.name.removeprefix("relax."))
        step = None if step_of is None else step_of(definition, shape)
        return None if step is None else (definition.args[0], step)


def _reshaping(_call: relax.Call, shape: tuple[int, ...]) -> _Step:
    return lambda array: array.reshape(shape)


def _transposing(call: relax.Call, _shape: tuple[int, ...]) -> _Step:
    axes = None if call.attrs.axes is None else [int(axis) for axis in call.attrs.axes]
    return lambda array: array.transpose(axes)


def _taking(call: relax.Call, _shape: tuple[int, ...]) -> _Step | None:
    data, positions = call.args
    if not is_constant(positions) or call.attrs.axis is None:
        return None
    indices, axis = array_of(positions), int(call.attrs.axis)
    if not indices.size or indices.min() < 0 or may_exceed(int(indices.max()) + 1, shape_of(data)[axis]):
        return None
    return lambda array: np.take(array, indices, axis)


def _strided_slicing(call: relax.Call, _shape: tuple[int, ...]) -> _Step | None:
    if len(call.args) < 5 or not all(isinstance(arg, relax.Tuple) for arg in call.args[1:]):
        return None
    fields = [list(arg.fields) for arg in call.args[1:]]
    if not all(isinstance(value, tirx.IntImm) for values in fields for value in values):
        return None
    axes, begin, end, steps = ([int(value) for value in values] for values in fields)
    return _slicing(axes, begin, end, steps) if all(step > 0 for step in steps) else None


def _slicing(axes: Sequence[int], begin: Sequence[int], end: Sequence[int], steps: Sequence[int]) -> _Step:
    def step(array: np.ndarray) -> np.ndarray:
        index = [slice(None)] * array.ndim
        for axis, *bounds in zip(axes, begin, end, steps, strict=True):
            index[axis] = slice(*bounds)
        return array[tuple(index)]

    return step


# For each operation that only moves elements, how; of a call and the shape of its result.
_STEPS: dict[str, Callable[[relax.Call, tuple[int, ...]], _Step | None]] = {
    "expand_dims": _reshaping,
    "permute_dims": _transposing,
    "reshape": _reshaping,
    "squeeze": _reshaping,
    "strided_slice": _strided_slicing,
    "take": _taking,
}


def _may_be_gathered(source: relax.Expr, result: relax.Var) -> bool:
    """Whether the shapes differ only in channels, of which the result has no more than the source."""
    if not isinstance(source.ty, relax.TensorType):
        return False
    before, after = shape_of(source), shape_of(result)
    return (
        is_known(*before, *after)
        and len(before) == len(after) > 2
        and (before[0], before[2:]) == (after[0], after[2:])
        and 0 < after[1] <= before[1]
        and 0 < math.prod(before) <= _LARGEST
    )


def _gathered_channels(shape: tuple[int, ...], steps: list[_Step]) -> np.ndarray | None:
    """Returns each result channel's source channel, int32; None if the steps do not move whole channels."""
    start = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    end = start
    for step in steps:
        end = step(end)
    channels: np.ndarray = end[0].reshape(end.shape[1], -1)[:, 0] // math.prod(shape[2:])
    return channels if channels.max() < shape[1] and np.array_equal(end, start[:, channels]) else None

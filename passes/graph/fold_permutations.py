"""Recognize what only moves whole channels, however it is spelled, and write it as one gather of channels.

    a = reshape(x, [N, 4, C / 4, H, W])
    b = permute_dims(a, [0, 2, 1, 3, 4])     →     c = take(x, [0, C / 4, C / 2, 3 C / 4, 1, C / 4 + 1, …], axis=1)
    c = reshape(b, [N, C, H, W])

This is the channel shuffle between grouped convolutions (Zhang et al., 2017), which needs no time in blocked layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of

__all__ = ["FoldPermutations"]

_LONGEST = 8  # operations that are looked at together
_LARGEST = 1 << 24  # elements of a tensor whose way is followed

_Step = Callable[[np.ndarray], np.ndarray]


@tvm.transform.module_pass(opt_level=0, name="FoldPermutations")
class FoldPermutations:
    """Replace chains of reshapes and transposes that put whole channels into another order by `take`."""

    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        return relax.transform.DeadCodeElimination()(_Folder(mod).transform())


class _Folder(Rewriter):
    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not is_call(call, "reshape") or not isinstance(var.ty, relax.TensorType):
            return call
        source, steps = self._way_of(call)
        if len(steps) < 3 or not _may_gather_channels(source, var):
            return call
        channels = _gathered_channels(shape_of(source), steps)
        if channels is None:
            return call
        return relax.op.take(source, constant(channels.astype(np.int32)), axis=1)

    def _way_of(self, call: relax.Call) -> tuple[relax.Expr, list[_Step]]:
        """Where the elements of a result come from, and the steps that bring them there."""
        steps: list[_Step] = []
        expr: relax.Expr = call
        while len(steps) < _LONGEST:
            definition = self.definition(expr)
            step = _step_of(definition)
            if definition is None or step is None:
                break
            steps.insert(0, step)
            expr = definition.args[0]
        return expr, steps


def _step_of(expr: relax.Expr | None) -> _Step | None:
    if is_call(expr, "reshape"):
        shape = tuple(int(extent) for extent in expr.args[1].values)
        return lambda array: array.reshape(shape)
    if is_call(expr, "permute_dims"):
        axes = None if expr.attrs.axes is None else [int(axis) for axis in expr.attrs.axes]
        return lambda array: array.transpose(axes)
    if is_call(expr, "take") and is_constant(expr.args[1]) and expr.attrs.axis is not None:
        indices, axis = array_of(expr.args[1]), int(expr.attrs.axis)
        if indices.size and indices.min() >= 0 and indices.max() < shape_of(expr.args[0])[axis]:
            return lambda array: array.take(indices, axis)
    return None


def _may_gather_channels(source: relax.Expr, result: relax.Var) -> bool:
    if not isinstance(source.ty, relax.TensorType):
        return False
    before, after = shape_of(source), shape_of(result)
    return len(before) > 2 and before == after and math.prod(before) <= _LARGEST


def _gathered_channels(shape: tuple[int, ...], steps: list[_Step]) -> np.ndarray | None:
    """Which channel each channel of the result was; None if the steps do not move whole channels."""
    start = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    end = start
    for step in steps:
        end = step(end)
    channels: np.ndarray = end[0].reshape(shape[1], -1)[:, 0] // math.prod(shape[2:])
    return channels if channels.max() < shape[1] and np.array_equal(end, start[:, channels]) else None

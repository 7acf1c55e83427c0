"""Translates the masks of STRIDED_SLICE to an index of Python."""

from __future__ import annotations

from typing import Any

from nnefc.frontends.tflite.flatbuffer import Table
from nnefc.operators.base import Array
from nnefc.support.diagnostics import CompileError

__all__ = ["python_index"]


def python_index(options: Table, begin: Array, end: Array, strides: Array, rank: int) -> tuple[Any, ...]:
    """The index: slices, integers where a dimension goes, `None` where one comes, and an ellipsis.

    Raises:
        CompileError: the operands do not fit.
    """
    begin, end, strides = (each.reshape(-1) for each in (begin, end, strides))
    if not len(begin) == len(end) == len(strides):
        raise CompileError(f"{len(begin)} begins, {len(end)} ends and {len(strides)} strides are given")

    def has(mask: int, axis: int) -> bool:
        return bool(mask >> axis & 1)

    index: list[Any] = []
    for axis, (first, last, step) in enumerate(zip(begin.tolist(), end.tolist(), strides.tolist(), strict=True)):
        if step == 0:
            raise CompileError("a stride is 0")
        if options.offset:
            last += first
        if has(options.ellipsis_mask, axis):
            index.append(...)
        elif has(options.new_axis_mask, axis):
            index.append(None)
        elif has(options.shrink_axis_mask, axis):
            index.append(first)
        else:
            low = None if has(options.begin_mask, axis) else first
            high = None if has(options.end_mask, axis) else last
            index.append(slice(low, high, step))
    if sum(part is not None and part is not ... for part in index) > rank:
        raise CompileError(f"{len(index)} slices do not fit a tensor of rank {rank}")
    return tuple(index)

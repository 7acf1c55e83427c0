"""Writes data movement: reshape, transpose, slice, concatenate and others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnefc.frontends.nnef.operations.sliding import BORDERS
from nnefc.frontends.nnef.writing.document import Document, Unsayable
from nnefc.frontends.nnef.writing.rules import reshaped, says, shape_of, transposed
from nnefc.operators.tensor.concatenation import Concat, Split, Stack, Unstack
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.padding import Pad
from nnefc.operators.tensor.shape import (
    Expand,
    RepeatElements,
    Reshape,
    Roll,
    Slice,
    Squeeze,
    Tile,
    Transpose,
    Unsqueeze,
)
from nnefc.symbolic.dims import is_known

MODES = {mode: border for border, mode in reversed(BORDERS.items())}
"""NNEF's borders by the modes of `Pad`."""


@says(Reshape)
def _reshape(document: Document, operator: Reshape, x: Any) -> Any:
    return document.value(reshaped(document, x, operator.shape(shape_of(x))))


@says(Squeeze)
def _squeeze(document: Document, operator: Squeeze, x: Any) -> Any:
    return document.call("squeeze", input=document.tensor(x), axes=sorted(operator.axes))


@says(Unsqueeze)
def _unsqueeze(document: Document, operator: Unsqueeze, x: Any) -> Any:
    return document.call("unsqueeze", input=document.tensor(x), axes=sorted(operator.axes))


@says(Transpose)
def _transpose(document: Document, operator: Transpose, x: Any) -> Any:
    return document.value(transposed(document, x, operator.order))


@says(Concat)
def _concat(document: Document, operator: Concat, *operands: Any) -> Any:
    given = [x for x in operands if shape_of(x)[operator.axis] != 0]
    if len(given) == 1:
        return document.value(given[0])
    return document.call("concat", values=given, axis=operator.axis)


@says(Stack)
def _stack(document: Document, operator: Stack, *operands: Any) -> Any:
    return document.call("stack", values=list(operands), axis=operator.axis)


@says(Split)
def _split(document: Document, operator: Split, x: Any) -> Any:
    """Write a split by proportions, or by slices if a size is dynamic."""
    sizes, axis = operator.sizes, operator.axis
    if 0 in sizes:
        raise Unsayable("NNEF has no tensors without elements, such as a part of a split")
    if not is_known(*sizes):
        raise Unsayable("NNEF splits by proportions that are known, here a part has a dynamic size")
    if len(sizes) == 1:
        return [document.value(x)]
    common = math.gcd(*sizes)
    made = document.call("split", value=document.tensor(x), axis=axis, ratios=[size // common for size in sizes])
    return list(made)


@says(Unstack)
def _unstack(document: Document, operator: Unstack, x: Any) -> Any:
    return list(document.call("unstack", value=document.tensor(x), axis=operator.axis))


@says(Slice)
def _slice(document: Document, operator: Slice, x: Any) -> Any:
    """Ends count from the end where the size is open; an end of 0 is that of the tensor."""
    axes, begin, end, stride = [], [], [], []
    shape = shape_of(x)
    for axis, (start, count, step) in sorted(operator.ranges.items()):
        if (start, count, step) == (0, shape[axis], 1):
            continue
        axes.append(axis)
        stride.append(step)
        first, last = slice_ends(shape[axis], start, count, step)
        begin.append(first)
        end.append(last)
    if not axes:
        return document.value(x)
    return document.call("slice", input=document.tensor(x), axes=axes, begin=begin, end=end, stride=stride)


def slice_ends(size: Any, start: Any, count: Any, step: Any) -> tuple[Any, Any]:
    """`begin` and `end` of NNEF for a range of positions; numbers, where that is possible."""
    if is_known(size, count) and count == 0:
        return size, size  # an end of 0 would be that of the tensor
    if not is_known(step):
        return start, count
    stop = start + count * step
    if step < 0:
        # Behind the first element: further from the end than there are elements.
        last = stop if is_known(stop) and stop >= 0 else -(size + 1) if is_known(stop, size) else stop
        return (start if is_known(start) else start - size), last
    if not is_known(start):
        start = start - size
    if is_known(stop, size):
        return start, 0 if stop >= size and step == 1 else min(stop, size)
    if not is_known(stop):
        tail = stop - size
        if is_known(tail):
            return start, int(tail) if tail < 0 else (0 if step == 1 else stop)
    return start, stop


@says(Tile)
def _tile(document: Document, operator: Tile, x: Any) -> Any:
    if all(isinstance(count, int) and count == 1 for count in operator.repeats):
        return document.value(x)
    return document.call("tile", input=document.tensor(x), repeats=list(operator.repeats))


@says(Expand)
def _expand(document: Document, operator: Expand, x: Any) -> Any:
    shape, target = shape_of(x), operator.target
    whole = (1,) * (len(target) - len(shape)) + tuple(shape)
    wider = x if len(shape) == len(target) else _with_leading(document, x, len(target) - len(shape))
    repeats = [1 if own == size else size for own, size in zip(whole, target, strict=True)]
    if all(isinstance(count, int) and count == 1 for count in repeats):
        return document.value(wider)
    return document.call("tile", input=document.tensor(wider), repeats=repeats)


def _with_leading(document: Document, x: Any, count: int) -> Any:
    if isinstance(x, np.ndarray):
        return x.reshape((1,) * count + x.shape)
    return document.call("unsqueeze", input=x, axes=list(range(count)))


@says(RepeatElements)
def _repeat_elements(document: Document, operator: RepeatElements, x: Any) -> Any:
    """Along a new dimension behind the repeated one, which are one afterwards."""
    shape, axis = shape_of(x), operator.axis
    apart = document.call("unsqueeze", input=document.tensor(x), axes=[axis + 1])
    repeats = [operator.count if dimension == axis + 1 else 1 for dimension in range(len(shape) + 1)]
    tiled = document.call("tile", input=apart, repeats=repeats)
    return reshaped(document, tiled, operator.shape(shape))


@says(Roll)
def _roll(document: Document, operator: Roll, x: Any) -> Any:
    """Along each dimension, what is behind comes first."""
    for axis, shift in enumerate(operator.shifts):
        size = shape_of(x)[axis]
        back = -shift % size
        if isinstance(back, int) and back == 0:
            continue
        whole = document.tensor(x)
        behind = document.call("slice", input=whole, axes=[axis], begin=[back], end=[0], stride=[1])
        before = document.call("slice", input=whole, axes=[axis], begin=[0], end=[back], stride=[1])
        x = document.call("concat", values=[behind, before], axis=axis)
    return document.value(x)


@says(Pad)
def _pad(document: Document, operator: Pad, x: Any, fill: Any = None) -> Any:
    """Write padding: negative widths as a slice first, integers by concatenation with constants."""
    if fill is not None and not isinstance(fill, np.ndarray):
        raise Unsayable("NNEF pads with a number that is known, here it is computed")
    if operator.mode not in MODES:
        raise Unsayable(f"NNEF cannot pad with what is at the other end ('{operator.mode}')")
    value = operator.value if fill is None else fill.item()
    if not is_known(*(amount for pair in operator.padding for amount in pair)):
        raise Unsayable("NNEF pads by numbers, here the padding depends on a dynamic size")
    cut = {
        axis: (max(0, -before), size + min(0, before) + min(0, after), 1)
        for axis, (size, (before, after)) in enumerate(zip(shape_of(x), operator.padding, strict=True))
        if before < 0 or after < 0
    }
    if cut:
        x = _slice(document, Slice(cut), x)
    padding = [(max(0, before), max(0, after)) for before, after in operator.padding]
    if not any(any(pair) for pair in padding):
        return document.value(x)
    if operator.mode == "constant" and not math.isfinite(value):
        raise Unsayable(f"NNEF has no number for {value}, which the tensor is padded with")
    return document.call(
        "pad", input=document.tensor(x), padding=padding, border=MODES[operator.mode], value=float(value)
    )


@says(Gather)
def _gather(document: Document, operator: Gather, x: Any, indices: Any) -> Any:
    """Write a gather, whose indices must be proved to be in range: NNEF leaves others undefined."""
    size = shape_of(x)[operator.axis]
    if isinstance(indices, np.ndarray) and indices.size and indices.min() < 0:
        if not is_known(size):
            raise Unsayable(
                "NNEF's indices count from the first element, here one counts from the end of a dynamic size"
            )
        indices = np.where(indices < 0, indices + size, indices)
    return document.call("gather", input=document.tensor(x), indices=indices, axis=operator.axis)

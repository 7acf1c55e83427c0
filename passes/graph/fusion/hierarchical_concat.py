"""Splits concatenations of many tensors, and splits into many, into two stages over groups of tensors.

    concat((a0, …, a999), axis)      →      b0 = concat((a0, …, a15), axis);  …;  concat((b0, …, b62), axis)
    split(x, 1000 parts, axis)       →      y0, …, y62 = split(x, 63 parts, axis);  split(y0, …);  …

Which part an element of a concatenation is of, its kernel finds by comparing its position with the end of one part
after the other: of few parts that takes no time, of many it is all the time, and code that grows faster than their
number. Of parts that lie one after the other in memory there is no kernel in the end, for the memory plan assigns them,
group by group: but until then there is one, and what is made of thousands of parts is too deep for TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.rewriter import Rewriter, is_call, shape_of

__all__ = ["MAX_PARTS", "group_parts"]

_Element = TypeVar("_Element")

MAX_PARTS = 64
"""The largest number of tensors that one kernel concatenates or splits."""

_GROUP = 16
"""The tensors of a group, where there are more: TVM's time to fuse a step with a concatenation grows with its parts."""


def group_parts(mod: tvm.IRModule) -> tvm.IRModule:
    """Gives concatenations and splits no more than `MAX_PARTS` parts."""
    bindings = bindings_of(mod["main"])
    many = any(_has_many_parts(binding.var, binding.value) for binding in bindings)
    return _Grouper(mod).transform() if many else mod


def _has_many_parts(var: relax.Var, call: relax.Expr) -> bool:
    if is_call(call, "concat"):
        return (
            isinstance(call.args[0], relax.Tuple)
            and call.attrs.axis is not None
            and len(call.args[0].fields) > MAX_PARTS
        )
    return bool(is_call(call, "split")) and len(var.ty.fields) > MAX_PARTS


class _Grouper(Rewriter):
    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if is_call(call, "concat") and _has_many_parts(var, call):
            return self._concatenated(list(call.args[0].fields), int(call.attrs.axis))
        if is_call(call, "split") and _has_many_parts(var, call):
            axis = int(call.attrs.axis) % len(shape_of(call.args[0]))
            sizes = [int(part.shape[axis]) for part in var.ty.fields]
            return relax.Tuple(self._split(call.args[0], sizes, axis))
        return call

    def _concatenated(self, parts: list[relax.Expr], axis: int) -> relax.Expr:
        while len(parts) > MAX_PARTS:
            parts = [self._joined(group, axis) for group in _groups(parts)]
        return relax.op.concat(parts, axis)

    def _joined(self, parts: Sequence[relax.Expr], axis: int) -> relax.Expr:
        return self.builder.emit(relax.op.concat(list(parts), axis)) if len(parts) > 1 else parts[0]

    def _split(self, data: relax.Expr, sizes: Sequence[int], axis: int) -> list[relax.Expr]:
        if len(sizes) == 1:
            return [data]
        groups = _groups(sizes) if len(sizes) > MAX_PARTS else [[size] for size in sizes]
        while len(groups) > MAX_PARTS:
            groups = [[size for group in several for size in group] for several in _groups(groups)]
        seams = list(accumulate(map(sum, groups)))[:-1]
        made = self.builder.emit(relax.op.split(data, seams, axis))
        parts = [self.builder.emit(relax.TupleGetItem(made, index)) for index in range(len(groups))]
        return [piece for part, group in zip(parts, groups, strict=True) for piece in self._split(part, group, axis)]


def _groups(elements: Sequence[_Element]) -> list[Sequence[_Element]]:
    """Returns the elements in their order, `_GROUP` at a time."""
    return [elements[begin : begin + _GROUP] for begin in range(0, len(elements), _GROUP)]

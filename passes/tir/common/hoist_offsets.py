"""Hoists the address computations of unrolled loops out of their copies.

    for k in n:                                    for k in n:
        for r in unrolled(14):                         a = (k h + y) w + 14 i
            c[r] += A[(k h + y) w + 14 i + r]   →      for r in unrolled(14):
                                                           c[r] += A[a + r]

LLVM hoists these too, but first TVM simplifies each copy: products of dynamic sizes take it long, and tiles have many
copies. It would also replace a variable by its value, if that is an integer expression that it knows: see
`tvm_workarounds/opaque.py`.
"""

from __future__ import annotations

import operator
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.sym import detect_linear_equation

from nnefc.passes.tir.common.expressions import inside, loads_of, variables_of
from nnefc.passes.tir.tvm_workarounds.opaque import opaque_binding

__all__ = ["hoist_offsets"]

_COPIED = (tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED)
_COMPARISONS = (tirx.LT, tirx.LE)
_QUOTIENTS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)


def hoist_offsets(stmt: tirx.Stmt) -> tirx.Stmt:
    """Hoists offsets in the statements of a flat CPU kernel, whose divisions have been hoisted."""
    copied: set[tirx.Var] = set()  # loops in others that become copies

    def change(loop: tirx.For) -> tirx.Stmt:
        if loop.kind not in _COPIED or loop.loop_var in copied:
            return loop
        offsets = _Offsets(loop)
        copied.update(offsets.loops)
        kinds = (((TensorLoad, tirx.BufferStore), offsets.change), (_COMPARISONS, offsets.compared))
        changed = tvm_ffi.structural_map(loop, kinds)
        return tirx.SeqStmt([*offsets.bound, changed]) if offsets.bound else loop

    return tvm_ffi.structural_map(stmt, (tirx.For, change), order="pre")


class _Offsets:
    """The first offsets of the accesses in a loop that is unrolled, and their strides where these are not constants.

    Attributes:
        loops: the variables of this loop and of those in it.
        bound: the variables that are to be defined before it.
    """

    def __init__(self, loop: tirx.For) -> None:
        found: list[Any] = []
        tvm_ffi.structural_walk(loop, ((tirx.For, tirx.Bind), found.append))
        self.loops = [node.loop_var for node in found if isinstance(node, tirx.For)]
        self.bound: list[tirx.Bind] = []
        self._inside = {*self.loops, *(node.var for node in found if isinstance(node, tirx.Bind))}
        self._values: list[tirx.Expr] = []

    def change(self, access: TensorLoad | tirx.BufferStore) -> TensorLoad | tirx.BufferStore:
        before = list(access.indices)
        indices = [self._index(index) for index in before]
        if all(map(operator.is_, indices, before)):
            return access
        if isinstance(access, TensorLoad):
            return tirx.BufferLoad(access.source, indices)
        return tirx.BufferStore(access.buffer, access.value, indices)

    def compared(self, comparison: tirx.LT | tirx.LE) -> tirx.Expr:
        sides = [comparison.a, comparison.b]
        changed = [self._index(side) for side in sides]
        return comparison if all(map(operator.is_, changed, sides)) else type(comparison)(*changed)

    def _index(self, index: tirx.Expr) -> tirx.Expr:
        """Returns an index as the sum of a hoisted variable and the contribution of the loops."""
        used = variables_of([index])
        loops = [var for var in self.loops if var in used]
        if str(index.expr_ty().dtype) != "int64" or not used - set(loops):
            return index
        linear = list(detect_linear_equation(index, loops)) if loops else [index]
        if not linear or not all(map(self._is_known_before, linear)):
            return index
        *steps, begin = linear
        return sum((var * self._named(step) for var, step in zip(loops, steps, strict=True)), self._named(begin))

    def _is_known_before(self, value: tirx.Expr) -> bool:
        """Whether the value can be computed before the loop, under any conditions in it."""
        divided = [node for node in inside(value) if isinstance(node, _QUOTIENTS)]
        by_numbers = all(isinstance(node.b, tirx.IntImm) for node in divided)
        return by_numbers and not loads_of(value) and not self._inside & variables_of([value])

    def _named(self, value: tirx.Expr) -> tirx.Expr:
        if isinstance(value, tirx.IntImm | tirx.Var):
            return value
        for bound, other in zip(self.bound, self._values, strict=True):
            if tvm_ffi.structural_equal(value, other):
                return bound.var
        self.bound.append(opaque_binding(tirx.Var("a", "int64"), value))
        self._values.append(value)
        return self.bound[-1].var

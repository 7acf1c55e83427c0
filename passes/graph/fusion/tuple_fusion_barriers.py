"""Keeps tuple accesses out of fused groups, so that groups take the elements as tensor operands.

    s = call_tir(split, x)                    s = call_tir(split, x)
    fused(s):                          →      a = s[0]
        y = relu(s[0])                        fused(a):
                                                  y = relu(a)

To `FuseOps`, `s[0]` is a step that may join others. A group with such a step has the whole tuple as an operand, and
gets its elements instead, one tuple after the other in the order of their addresses: the second tuple is replaced at
the index that it had before the first became several operands. So fusion here sees an operator that nothing joins.
"""

from __future__ import annotations

import tvm
from tvm import relax

from nnefc.ir.attributes import ELEMENT_OF_TUPLE
from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.rewriter import Rewriter, is_call

__all__ = ["hide_elements", "show_elements"]


def hide_elements(mod: tvm.IRModule) -> tvm.IRModule:
    """Replaces accesses of tuples by calls that no step joins."""
    bindings = bindings_of(mod["main"])
    some = any(isinstance(binding.value, relax.TupleGetItem) for binding in bindings)
    return _Hider(mod).transform() if some else mod


def show_elements(mod: tvm.IRModule) -> tvm.IRModule:
    """Restores accesses of tuples."""
    some = any(_is_hidden(binding.value) for binding in bindings_of(mod["main"]))
    return _Shower(mod).transform() if some else mod


def _is_hidden(value: relax.Expr) -> bool:
    return bool(is_call(value, "call_pure_packed") and value.args[0].global_symbol == ELEMENT_OF_TUPLE)


class _Hider(Rewriter):
    """`s[0]` → an opaque call."""

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        return call

    def replaced(self, expr: relax.Expr) -> relax.Expr:
        new = super().replaced(expr)
        if not isinstance(new, relax.TupleGetItem):
            return new
        index = relax.prim_value(new.index)
        return relax.op.call_pure_packed(ELEMENT_OF_TUPLE, new.tuple_value, index, ty_args=[expr.ty])


class _Shower(Rewriter):
    """The opaque call → `s[0]`."""

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not _is_hidden(call):
            return call
        _, whole, index = call.args
        return relax.TupleGetItem(whole, int(index.value))

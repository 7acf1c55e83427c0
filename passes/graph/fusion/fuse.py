"""Fuses element-wise operators with the producers of their operands, and merges equal kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.canonical_dims import canonicalize_dims
from nnefc.passes.graph.debug_locations import group_names
from nnefc.passes.graph.fusion.fusion_patterns import annotate_patterns
from nnefc.passes.graph.fusion.split_large_groups import CutRule, split_large_groups
from nnefc.passes.graph.fusion.tuple_fusion_barriers import hide_elements, show_elements
from nnefc.passes.graph.rewriter import Rewriter

__all__ = ["fuse"]


GraphPass: TypeAlias = Callable[[tvm.IRModule], tvm.IRModule]


def fuse(mod: tvm.IRModule, cuts: Sequence[CutRule] = (), moves: Sequence[GraphPass] = ()) -> tvm.IRModule:
    """Fuses kernels of single operations into kernels of several, and merges equal kernels.

    Kernels are written with the network's own variables of sizes before the pass and after it.

    Args:
        cuts: where else to split the groups that become kernels.
        moves: passes that move steps from group to group.
    """
    annotated = annotate_patterns(mod)
    grouped = show_elements(relax.transform.FuseOps()(hide_elements(annotated)))
    grouped = split_large_groups(grouped, cuts)
    for move in moves:
        grouped = move(grouped)
    names = group_names(annotated, grouped)
    joined = relax.transform.DeadCodeElimination(["main"])(relax.transform.FuseTIR()(grouped))
    # TVM gives kernels variables of their own, and no shape to results whose sizes no operand's shape shows.
    return canonicalize_dims(_Namer(joined, names).transform())


class _Namer(Rewriter):
    """Numbers the variables of calls in their order, and restores their names."""

    def __init__(self, mod: tvm.IRModule, names: Sequence[str]) -> None:
        super().__init__(mod)
        calls = [b for b in bindings_of(self.old) if isinstance(b.value, relax.Call)]
        if len(calls) != len(names):
            raise AssertionError(f"fusion made {len(calls)} calls of {len(names)} groups")
        self._names = {binding.var: name for binding, name in zip(calls, names, strict=True)}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        name = self._names[var]
        return self.builder.emit(call, name) if name else call

"""Fuses element-wise operators with the producers of their operands, and merges equal kernels."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from nnefc.passes.graph.canonical_dims import CanonicalizeDims
from nnefc.passes.graph.debug_locations import group_names
from nnefc.passes.graph.fusion.fusion_patterns import AnnotatePatterns
from nnefc.passes.graph.fusion.split_large_groups import CutRule, SplitGroups
from nnefc.passes.graph.fusion.tuple_fusion_barriers import add_tuple_fusion_barriers
from nnefc.passes.graph.rewriter import Rewriter

__all__ = ["fuse"]


def fuse(cuts: Sequence[CutRule] = (), moves: Sequence[tvm.ir.transform.Pass] = ()) -> tvm.ir.transform.Pass:
    """Returns the pass that turns kernels of single operations into kernels of several, each called where it was.

    Kernels are written with the network's own variables of sizes before the pass and after it.

    Args:
        cuts: where else to split the groups that become kernels.
        moves: passes that move steps from group to group.
    """
    return _Fuse(cuts, moves)


@tvm.transform.module_pass(opt_level=0, name="Fuse")
class _Fuse:
    def __init__(self, cuts: Sequence[CutRule], moves: Sequence[tvm.ir.transform.Pass]) -> None:
        self._annotate: tvm.ir.transform.Pass = AnnotatePatterns()
        self._restore_dims: tvm.ir.transform.Pass = CanonicalizeDims()
        self._group = tvm.ir.transform.Sequential(
            [add_tuple_fusion_barriers(relax.transform.FuseOps()), SplitGroups(cuts), *moves]
        )
        self._join = tvm.ir.transform.Sequential(
            [relax.transform.FuseTIR(), relax.transform.DeadCodeElimination(["main"])]
        )

    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        annotated = self._annotate(mod)
        grouped = self._group(annotated)
        names = group_names(annotated, grouped)
        fused = _Namer(self._join(grouped), names).transform()
        # TVM gives kernels variables of their own, and no shape to results whose sizes no operand's shape shows.
        return self._restore_dims(fused)


class _Namer(Rewriter):
    """Gives the variables of calls, in their order, names."""

    def __init__(self, mod: tvm.IRModule, names: Sequence[str]) -> None:
        super().__init__(mod)
        calls = [b for block in self.old.body.blocks for b in block.bindings if isinstance(b.value, relax.Call)]
        if len(calls) != len(names):
            raise AssertionError(f"fusion made {len(calls)} calls of {len(names)} groups")
        self._names = {binding.var: name for binding, name in zip(calls, names, strict=True)}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        name = self._names[var]
        return self.builder.emit(call, name) if name else call

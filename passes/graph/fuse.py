"""Join element-wise operations with what produces their operands; of equal kernels keep one."""

from __future__ import annotations

import tvm
from tvm import relax

from nnefc.passes.graph.patterns import AnnotatePatterns
from nnefc.passes.graph.split_groups import CutRule, SplitGroups

__all__ = ["fuse"]


def fuse(*cuts: CutRule) -> tvm.ir.transform.Pass:
    """Kernels of single operations → kernels of several, each called where it was.

    Args:
        cuts: where else to split the groups that become kernels.
    """
    return tvm.ir.transform.Sequential(
        [
            AnnotatePatterns(),
            relax.transform.FuseOps(),
            SplitGroups(cuts),
            relax.transform.FuseTIR(),
            relax.transform.DeadCodeElimination(["main"]),
        ]
    )

"""Join element-wise operations with what produces their operands; of equal kernels keep one."""

from __future__ import annotations

import tvm
from tvm import relax

from nnefc.passes.graph.patterns import AnnotatePatterns
from nnefc.passes.graph.split_groups import SplitGroups

__all__ = ["fuse"]


def fuse() -> tvm.ir.transform.Pass:
    """Kernels of single operations → kernels of several, each called where it was."""
    return tvm.ir.transform.Sequential(
        [
            AnnotatePatterns(),
            relax.transform.FuseOps(),
            SplitGroups(),
            relax.transform.FuseTIR(),
            relax.transform.DeadCodeElimination(["main"]),
        ]
    )

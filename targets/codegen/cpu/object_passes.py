"""Adapts TVM's passes over the functions of an object file to the functions of this compiler.

Indices become as wide as pointers, where TVM would take 32 bits. LLVM 22 extends narrower ones by itself, and then its
loop vectorizer takes some that are computed by divisions, under a condition, for neighbours.

Kernels are scheduled and their memory is planned: TVM must not plan it once more. Loops are unrolled before others
become vectors: TVM proves that `2 == 1`, so that a formula chosen by the position in a tile is not there for every
position, but not that sixteen of them are.

Kernels with dynamic dimensions have several times as many statements, in tiles of several sizes. They go without what
LLVM does too, in less time: conditions hoisted out of loops, and removal of statements without effect. Where no value
depends on a condition, no formula is chosen by a position either: their loops become vectors, and are simplified,
before others are unrolled, once for all copies. Nor are there common expressions that LLVM would not find, such as
those behind conditions.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import tirx
from tvm.ir import register_op_attr

from nnefc.ir.attributes import CHECKED, CONDITIONAL_VALUES
from nnefc.targets.codegen.cpu.checks import insert_checks
from nnefc.targets.codegen.cpu.masks import lower_masks
from nnefc.targets.codegen.cpu.strided_loads import shuffle_strided_loads

__all__ = ["checks", "each", "vectorized", "where_values_are_chosen"]


def each(change: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> tvm.transform.Pass:
    """Return a pass that applies a function to each function of a module."""
    return tirx.transform.prim_func_pass(lambda func, _module, _context: change(func), opt_level=0)


def where_values_are_chosen(chosen: bool, change: tvm.transform.Pass) -> tvm.transform.Pass:
    """Return a pass over the functions that are marked as having values that depend on conditions, or have no mark; or
    over the others.

    Args:
        chosen: which of these functions it changes.
        change: the pass.
    """

    def changed(func: tirx.PrimFunc, _module: tvm.IRModule, _context: tvm.transform.PassContext) -> tirx.PrimFunc:
        concerned = bool(func.attrs.get(CONDITIONAL_VALUES, True)) == chosen
        return change(tvm.IRModule({"kernel": func}))["kernel"] if concerned else func

    return tirx.transform.prim_func_pass(changed, opt_level=0)


_FIXED_LENGTHS = tvm.target.Target("llvm")  # of vectors: it has no scalable ones

# LLVM compares vectors with themselves, too. TVM would otherwise split a vector for it, and lose the values that a
# reduction of pairs binds to names.
register_op_attr("tirx.isnan", "TVectorizable", True)


def vectorized(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Vectorize loops, with fixed lengths for RISC-V too: TVM's scalable vectors do not stay in registers."""
    target = func.attrs["target"]
    fixed = tvm.IRModule({"kernel": func.with_attr("target", _FIXED_LENGTHS)})
    made = lower_masks(tirx.transform.VectorizeLoop(True)(fixed)["kernel"].with_attr("target", target))
    return shuffle_strided_loads(made)


def checks(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Add checks to a function that is marked for it."""
    return insert_checks(func) if CHECKED in func.attrs else func

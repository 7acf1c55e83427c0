"""How the rules of a target are tried."""

from __future__ import annotations

import pytest
import tvm
from tvm import te, tirx

from nnefc.ir.attributes import DYNAMIC_DIMENSIONS, RULE
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.element_wise.element_wise import ElementWiseRule
from nnefc.passes.schedule.rule import scheduled
from nnefc.passes.tir.common.name_symbolic_dims import name_loop_extents, named_sizes
from nnefc.targets.machine.cuda.target import parse_cuda_target


def test_a_size_in_whose_formula_tvm_finds_no_multiples_is_one_variable() -> None:
    w = tirx.Var("w", "int64")
    two, eight = (tirx.const(size, "int64") for size in (2, 8))
    size = tirx.max(w - tirx.const(4, "int64"), tirx.const(1, "int64")) + two
    x = te.placeholder((two, eight, size))
    transposed = te.create_prim_func([x, te.compute((two, size, eight), lambda i, j, k: x[i, k, j])])
    machine = parse_cuda_target("cuda")
    func = transposed.with_attr(DYNAMIC_DIMENSIONS, [w])
    with pytest.raises(tvm.error.InternalError):  # where TVM does not fail, `KernelContext.run_then` need not try again
        scheduled(KernelAnalysis(name_loop_extents(func)), [ElementWiseRule()], machine)
    made = scheduled(KernelAnalysis(name_loop_extents(func, every=True)), [ElementWiseRule()], machine)
    assert made.attrs[RULE] == "ElementWiseRule"
    ((_, formula),) = named_sizes(made)
    tvm.ir.assert_structural_equal(formula, size)

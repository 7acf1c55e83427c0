"""Steps that read neighbours in a line; what they read may also depend on data."""

from __future__ import annotations

import numpy as np
import tvm
from relax_programs import target
from tvm import te, tirx

from nnefc.ir.attributes import RULE
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.rule import scheduled


def test_windows_whose_size_depends_on_data_are_left_to_other_rules() -> None:
    """As in sampling between the positions that a grid names."""
    data, low, high = te.placeholder((7, 32)), te.placeholder((32,), "int32"), te.placeholder((32,), "int32")
    line = te.compute(data.shape, lambda row, column: tirx.abs(data(row, column)))
    mean = te.compute(data.shape, lambda row, i: (line(row, low(i)) + line(row, high(i))) * tirx.const(0.5, "float32"))
    machine = target("llvm -mcpu=x86-64-v3")
    func = scheduled(KernelAnalysis(te.create_prim_func([data, low, high, mean])), CPU_RULES, machine)
    assert func.attrs[RULE] == "FallbackRule"
    library = tvm.compile(func, target=machine.to_tvm())
    rng = np.random.default_rng(0)
    x, positions = rng.standard_normal((7, 32)).astype(np.float32), rng.integers(0, 32, (2, 32)).astype(np.int32)
    result = tvm.runtime.tensor(np.zeros_like(x))
    library["main"](*map(tvm.runtime.tensor, (x, *positions)), result)
    np.testing.assert_allclose(result.numpy(), np.abs(x[:, positions]).mean(1), rtol=1e-6)

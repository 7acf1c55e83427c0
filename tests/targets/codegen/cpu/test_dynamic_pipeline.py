"""Kernels of dynamic sizes are simplified by fewer of TVM's passes than others: their tiles have many statements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pass_runs import lower, objects_of
from relax_programs import network_of, opened, program, target
from tvm import ir

from nnefc.backends import backend_of
from nnefc.symbolic.dims import ranges

LEFT_TO_LLVM = {"s_tir.HoistIfThenElse", "tirx.RemoveNoOp"}


@pytest.mark.parametrize(("rows", "wanted"), [('"n"', set()), ("5", LEFT_TO_LLVM)])
def test_what_llvm_does_too_is_left_to_it_for_dynamic_sizes(rows: str, wanted: set[str], tmp_path: Path) -> None:
    network = opened(network_of(program(f"x[{rows}, 16] -> y\ny = R.matmul(x, w)", w=np.ones((16, 32), np.float32))))
    machine, kernels = target("llvm -mcpu=x86-64-v3"), []
    with ranges({d.var: d.values for d in network.dynamic_dimensions}):
        lower(network, backend_of(machine), None, receive=kernels.append)
    ran: list[str] = []

    @ir.instrument.pass_instrument
    class Names:
        def run_before_pass(self, _module: ir.IRModule, info: object) -> None:
            ran.append(str(info.name))

    with ir.transform.PassContext(instruments=[Names()]):
        objects_of(machine)(kernels[:1], tmp_path / "kernel.o")
    assert "tirx.StmtSimplify" in ran
    assert LEFT_TO_LLVM & set(ran) == wanted

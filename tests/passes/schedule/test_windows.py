"""Windows whose results are of another type than their sums."""

from __future__ import annotations

import tvm
from relax_programs import target
from tvm import te, tirx

from nnefc.ir.attributes import RULE
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.rule import scheduled


def test_engines_narrow_two_vectors_of_sums_at_once() -> None:
    data, weights = te.placeholder((4, 9, 9, 8), "int32"), te.placeholder((4, 3, 3, 8), "int32")
    y, x = te.reduce_axis((0, 3)), te.reduce_axis((0, 3))
    sums = te.compute((4, 7, 7, 8), lambda o, i, j, c: te.sum(data[o, i + y, j + x, c] * weights[o, y, x, c], [y, x]))
    scaled = te.compute(
        sums.shape,
        lambda *at: tirx.nearbyint(sums(*at).astype("float32") * tirx.const(0.25, "float32")).astype("int16"),
    )
    machine = target("wasm32-wasi")
    func = scheduled(KernelAnalysis(te.create_prim_func([data, weights, scaled])), CPU_RULES, machine)
    assert str(func.attrs[RULE]) == "WindowsRule"
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    lines = tvm.compile(module, target=machine.to_tvm()).mod.inspect_source("asm").split()
    assert "f32x4.nearest" in lines
    assert "f32.nearest" not in lines

"""Where groups of operations are cut, so that what memory holds is narrow: kernels before and after, as text."""

from __future__ import annotations

import pytest
import tvm
from pass_runs import lower
from relax_programs import network_of, program, summary, target

from nnefc.backends import backend_of

TEXT = """
x[1, 4, 6, 6] -> {results}
q = R.quantize(x, R.const(0.1), R.const(0, "int8"), out_dtype="int8")
d = R.dequantize(q, R.const(0.1), R.const(0, "int8"))
e = R.exp(d)
y = R.nn.max_pool2d(e, (2, 2))
"""


def fused(text: str, name: str) -> list[str]:
    backend, seen = backend_of(target(name)), {}
    backend.check()
    module = program(text)

    def observe(phase: str, made: tvm.IRModule) -> None:
        if phase == "fuse":
            seen[phase] = summary(made)

    lower(network_of(module), backend, observe)
    return seen["fuse"].splitlines()


def test_steps_behind_a_narrow_value_are_computed_where_they_are_read() -> None:
    text = TEXT.format(results="y")
    assert fused(text, "cortex-m55") == [
        "lv[1, 4, 6, 6] = quantize(x)",
        "lv1[1, 4, 5, 5] = fused_dequantize_tir_exp_max_pool(lv)",
        "-> lv1",
    ]


@pytest.mark.parametrize(("name", "results"), [("llvm", "y"), ("cortex-m55", "y, e")])
def test_machines_with_memory_and_several_readers_keep_the_steps_together(name: str, results: str) -> None:
    first, *_ = fused(TEXT.format(results=results), name)
    assert first == "lv[1, 4, 6, 6] = fused_quantize_dequantize_tir_exp(x)"

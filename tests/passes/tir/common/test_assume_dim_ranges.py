"""What TVM knows of sizes that are known at run time."""

from __future__ import annotations

import re

import tvm_ffi
from pass_runs import lower_kernel
from tvm import te, tirx

from nnefc.passes.tir.common.assume_dim_ranges import simplify_min_max
from nnefc.symbolic.dims import Range, ranges


def test_minimum_and_maximum_of_sizes_are_what_their_ranges_say() -> None:
    s, t, i = (tirx.Var(name, "int64") for name in "sti")
    buffer = tirx.decl_buffer((64,), "float32")
    value = tirx.FloatImm("float32", 0.0)
    indices = {
        tirx.min(s // 24 * 24 + 24, 12): "12",
        tirx.max(s, -1): "s",
        tirx.min(s, t + 100): "s",
        tirx.min(s, t): "T.min(s, t)",
        tirx.min(s, i): "T.min(s, i)",  # no size
    }
    with ranges({s: Range(0, 99, 10), t: Range(0, 99, 10)}):
        for index, expected in indices.items():
            func = tirx.PrimFunc([], tirx.BufferStore(buffer, value, [index]))
            assert str(simplify_min_max(func, [s, t]).body.indices[0]).replace("T.int64(12)", "12") == expected


def test_the_minimum_of_real_numbers_is_left_as_it_is() -> None:
    """Those of a quantization whose operand is constant: they have no variable that is no size."""
    s = tirx.Var("s", "int64")
    value = tirx.min(tirx.nearbyint(tirx.const(0.0, "float32")), tirx.const(255.0, "float32"))
    func = tirx.PrimFunc([], tirx.BufferStore(tirx.decl_buffer((64,), "float32"), value, [s]))
    with ranges({s: Range(0, 63, 10)}):
        assert tvm_ffi.structural_equal(simplify_min_max(func, [s]), func)


def test_statements_are_under_the_condition_that_sizes_are_in_range() -> None:
    n, h = tirx.Var("n", "int64"), tirx.Var("h", "int64")
    x = te.placeholder((h, n), name="x")
    y = te.compute((n * h,), lambda i: x[i % h, i // h], name="y")
    with ranges({n: Range(1, 64, 4), h: Range(0, 99, 4)}):
        kernel = lower_kernel(te.create_prim_func([x, y], "int64"), [n, h]).func
    assert "if n >= 1 and n <= 64 and h >= 0 and h <= 99:" in re.sub(r"T.int64\((\d+)\)", r"\1", kernel.script())

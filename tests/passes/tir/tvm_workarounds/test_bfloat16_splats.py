"""Vectors of one bfloat16."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import tirx

from nnefc.passes.tir.tvm_workarounds.bfloat16_splats import splat_bfloat16


@pytest.mark.parametrize(
    ("dtype", "value", "repeats"),
    [
        ("bfloat16", lambda x, y, lane: x[0], True),
        ("bfloat16", lambda x, y, lane: x[lane], False),
        ("bfloat16", lambda x, y, lane: y[0].astype("bfloat16"), True),
        ("bfloat16", lambda x, y, lane: (y[0] * y[lane]).astype("bfloat16"), False),
        ("bfloat16", lambda x, y, lane: tirx.Select(lane < 3, x[0], x[lane]), True),
        ("bfloat16", lambda x, y, lane: tirx.if_then_else(lane < 3, x[lane], x[0]), True),
        ("float32", lambda x, y, lane: x[0].astype("float32") * y[lane], False),
        ("float32", lambda x, y, lane: y[0], False),
    ],
)
def test_a_loop_that_repeats_a_number_is_serial(dtype: str, value: Callable[..., tirx.Expr], repeats: bool) -> None:
    x, y, out = (tirx.decl_buffer((8,), kind) for kind in ("bfloat16", "float32", dtype))
    lane = tirx.Var("lane", "int64")
    zero, count = (tirx.IntImm("int64", number) for number in (0, 8))
    store = tirx.BufferStore(out, value(x, y, lane), [lane])
    made = splat_bfloat16(tirx.For(lane, zero, count, tirx.ForKind.VECTORIZED, store))
    assert made.kind == (tirx.ForKind.SERIAL if repeats else tirx.ForKind.VECTORIZED)
    assert made.body.same_as(store)

"""Ranges of bytes: what operators clamp is known, and what may wrap around is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax

from nnefc.passes.graph.quantized.byte_ranges import byte_range
from nnefc.passes.graph.rewriter import constant

Step = Callable[[relax.Expr], relax.Expr]


def clip(low: float, high: float) -> Step:
    return lambda x: relax.op.clip(x, low, high)


def maximum(*bounds: float) -> Step:
    return lambda x: relax.op.maximum(x, constant(np.array(bounds, str(x.ty.dtype))))


def minimum(*bounds: float) -> Step:
    return lambda x: relax.op.minimum(x, constant(np.array(bounds, str(x.ty.dtype))))


def add(*terms: float) -> Step:
    return lambda x: relax.op.add(x, constant(np.array(terms, str(x.ty.dtype))))


def cast(dtype: str) -> Step:
    return lambda x: relax.op.astype(x, dtype)


INT32, INT8, UINT8 = map(cast, ("int32", "int8", "uint8"))


@pytest.mark.parametrize(
    ("dtype", "steps", "expected"),
    [
        ("uint8", [], (0, 255)),
        ("uint8", [clip(0, 127)], (0, 127)),
        ("int8", [relax.op.nn.relu], (0, 127)),
        ("int8", [maximum(-3, 5), lambda x: relax.op.reshape(x, (2, 2))], (-3, 127)),
        ("int8", [minimum(7, 60)], (-128, 60)),
        ("int8", [add(1)], (-128, 127)),  # wraps around
        ("float32", [clip(0, 127), relax.op.round, INT32, INT8], (0, 127)),
        ("float32", [maximum(-3), minimum(124), relax.op.round, INT32, add(3), UINT8], (0, 127)),
        ("float32", [maximum(-5), minimum(30), relax.op.round, INT32, add(3), UINT8], (0, 255)),  # -2 wraps around
        ("float32", [clip(-2.5, 100.75), INT8], (-2, 100)),
        ("float32", [relax.op.nn.relu, relax.op.round, INT32, UINT8], (0, 255)),
        ("float32", [clip(0, 100), add(float("nan")), UINT8], (0, 255)),
        ("float32", [clip(0, 100), relax.op.exp, UINT8], (0, 255)),
    ],
)
def test_ranges(dtype: str, steps: list[Step], expected: tuple[int, int]) -> None:
    builder, data = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 2), dtype))
    found: list[tuple[int, int]] = []
    with builder.function("main", [data]):
        with builder.dataflow():
            result: relax.Expr = data
            for step in steps:
                result = builder.emit(step(result))
            found.append(byte_range(result, lambda expr: builder.lookup_binding(expr)))
            builder.emit_output(result)
        builder.emit_func_output(result)
    assert found == [expected]

"""Calls on other operands keep the type of the call where it is the same."""

from __future__ import annotations

import pytest
from tvm import relax
from tvm.ir import assert_structural_equal

from nnefc.passes.graph.rewriter import with_operands


def variable(*shape: int) -> relax.Var:
    return relax.Var("data", relax.TensorType(shape, "float32"))


@pytest.mark.parametrize("size", [8, 9])
def test_a_type_is_kept_only_for_operands_of_equal_types(size: int) -> None:
    data, other, filters = variable(1, 3, 8, 8), variable(1, 3, size, 8), variable(4, 3, 3, 3)
    builder = relax.BlockBuilder()
    with builder.function("main", [data, other, filters]):
        call = builder.lookup_binding(builder.emit(relax.op.nn.conv2d(data, filters, padding=1)))
        made = with_operands(call, [other, filters])
        assert made.ty.same_as(call.ty) == (size == 8)
        result = builder.emit(made)
        builder.emit_func_output(result)
    assert_structural_equal(result.ty, relax.TensorType((1, 4, size, 8), "float32"))

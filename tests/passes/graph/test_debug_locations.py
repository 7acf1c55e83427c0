"""Names of the model's tensors on their way through the passes."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.debug_locations import NamingBuilder, debug_locations, group_names
from nnefc.passes.graph.fusion.fuse import fuse

MAX = 16  # tensors that a group is named after


def test_names_that_passes_make_are_those_of_the_tensor() -> None:
    assert debug_locations("conv1") == ("conv1",)
    assert debug_locations("conv1@") == debug_locations("conv1@12") == ("conv1",)
    assert debug_locations("conv1+norm1+conv1@3") == ("conv1", "norm1")
    assert debug_locations("a+b") == ("a+b",)  # of a model
    assert debug_locations("@") == ()


def test_a_builder_names_what_it_emits_after_what_is_rewritten() -> None:
    builder, x = NamingBuilder(), relax.Var("x", relax.TensorType((2,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            builder.rewritten = "conv@2"
            made = [builder.emit(relax.op.add(x, x)), builder.emit(relax.op.add(x, x)), builder.emit(x + x, "own")]
            result = builder.emit_output(made[-1])
        builder.emit_func_output(result)
    assert [debug_locations(var.name) for var in made] == [("conv",), ("conv",), ("own",)]


def chain(operations: int, shape: tuple[int, ...] = (8,)) -> tvm.IRModule:
    """y1 = exp(x), y2 = tanh(y1), y3 = exp(y2), …"""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: Any = x
            for i in range(1, operations + 1):
                value = builder.emit((relax.op.exp if i % 2 else relax.op.tanh)(value), f"y{i}_")
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return relax.transform.LegalizeOps()(builder.get())


def names(mod: tvm.IRModule) -> list[str]:
    bindings = bindings_of(mod["main"])
    return [name for b in bindings if isinstance(b.value, relax.Call) for name in debug_locations(b.var.name)]


def test_groups_are_named_after_their_steps() -> None:
    assert names(fuse(chain(3))) == ["y1_", "y2_", "y3_"]


@pytest.mark.parametrize("length", [100, 1000])
@pytest.mark.sample(1)
def test_no_step_of_a_long_chain_is_lost(length: int) -> None:
    before = chain(length)
    after = fuse(before)
    calls = [b for b in bindings_of(after["main"]) if isinstance(b.value, relax.Call)]
    found = [debug_locations(b.var.name) for b in calls]
    assert found[0][0] == "y1_" and found[-1][-1] == f"y{length}_"
    assert all(0 < len(each) <= MAX for each in found)
    if all(len(each) < MAX for each in found):
        assert [name for each in found for name in each] == [f"y{i}_" for i in range(1, length + 1)]


def test_equal_steps_of_equal_operands_are_reported_apart() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            left, right = (builder.emit(relax.op.matmul(x, x), name) for name in ("left", "right"))
            out = builder.emit_output(relax.Tuple([left, right]))
        builder.emit_func_output(out)
    before = relax.transform.LegalizeOps()(builder.get())
    assert [debug_locations(name) for name in group_names(before, before)] == [("left",), ("right",)]

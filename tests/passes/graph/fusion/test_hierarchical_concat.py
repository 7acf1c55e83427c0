"""Concatenations of many tensors and splits into many: the same values by groups, and code as long as they are many."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from pass_runs import lower
from relax_programs import network_of, program, target
from tvm import relax

from nnefc.backends import backend_of
from nnefc.driver.compile import compile_network
from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.fusion.hierarchical_concat import MAX_PARTS, group_parts
from nnefc.passes.graph.rewriter import is_call
from nnefc.passes.plan.memory import BufferCopy

COUNT = 2 * MAX_PARTS + 12
"""Even, and so many that two groups are not enough."""


def _concatenation(count: int, rows: int = 2) -> tvm.IRModule:
    inputs = "; ".join(f"x{k}[{rows}, {1 + k % 3}]" for k in range(count))
    return program(f"{inputs} -> y\ny = R.concat(({', '.join(f'x{k}' for k in range(count))}), axis=1)")


def _split(count: int, rows: int = 2) -> tvm.IRModule:
    seams = [2 * k + k % 2 for k in range(1, count)]
    parts = "\n".join(f"y{k} = parts[{k}]" for k in range(count))
    outputs = ", ".join(f"y{k}" for k in range(count))
    return program(f"x[{rows}, {2 * count + 1}] -> {outputs}\nparts = R.split(x, {seams}, axis=1)\n{parts}")


def _max_parts(module: tvm.IRModule) -> int:
    calls = [binding.value for binding in bindings_of(module["main"])]
    joined = [len(call.args[0].fields) for call in calls if is_call(call, "concat")]
    return max(joined + [len(call.ty.fields) for call in calls if is_call(call, "split")])


@pytest.mark.parametrize("make", [_concatenation, _split])
def test_no_kernel_has_many_parts(make: object) -> None:
    assert _max_parts(group_parts(make(600))) <= MAX_PARTS  # type: ignore[operator]


@pytest.mark.parametrize("make", [_concatenation, _split])
def test_few_parts_are_left_alone(make: object) -> None:
    few = make(MAX_PARTS)  # type: ignore[operator]
    assert group_parts(few).same_as(few)


@pytest.mark.parametrize("make", [_concatenation, _split])
def test_groups_of_slices_that_lie_one_after_the_other_are_no_work(make: object) -> None:
    """What is left are copies of the inputs, or to the outputs, each once."""
    module = make(300, rows=1)  # type: ignore[operator]
    assert _max_parts(group_parts(module)) <= MAX_PARTS
    lowered = lower(network_of(module), backend_of(target("llvm")))
    assert len(lowered.plan.actions) == 300
    assert all(isinstance(action, BufferCopy) for action in lowered.plan.actions)


@pytest.mark.slow
def test_concatenations_and_splits_of_hundreds_are_right() -> None:
    rng = np.random.default_rng(0)
    network = network_of(_concatenation(COUNT))
    given = {f"x{k}": rng.standard_normal((2, 1 + k % 3), dtype=np.float32) for k in range(COUNT)}
    with compile_network(network, target("llvm")).load() as loaded:
        (found,) = loaded.run(given).values()
    np.testing.assert_array_equal(found, np.concatenate(list(given.values()), 1))
    x = rng.standard_normal((2, 2 * COUNT + 1), dtype=np.float32)
    with compile_network(network_of(_split(COUNT)), target("llvm")).load() as loaded:
        parts = list(loaded.run({"x": x}).values())
    for part, expected in zip(parts, np.split(x, [2 * k + k % 2 for k in range(1, COUNT)], 1), strict=True):
        np.testing.assert_array_equal(part, expected)


def test_code_is_linear_in_the_number_of_parts() -> None:
    def length(count: int) -> int:
        texts: dict[str, str] = {}
        module = _concatenation(count)
        lower(network_of(module), backend_of(target("llvm")), lambda name, m: texts.setdefault(name, m.script()))  # type: ignore[func-returns-value]
        return len(texts["schedule"])

    assert length(320) < 4 * 1.25 * length(80)


def test_groups_stay_apart() -> None:
    """Fused with each other they would be one kernel again."""
    texts: dict[str, tvm.IRModule] = {}
    lower(network_of(_concatenation(300)), backend_of(target("llvm")), lambda name, m: texts.setdefault(name, m))  # type: ignore[func-returns-value]
    kernels = [f for f in texts["schedule"].functions.values() if not isinstance(f, relax.Function)]
    assert max(len(kernel.params) for kernel in kernels) <= 2 * MAX_PARTS + 1

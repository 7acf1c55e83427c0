"""Each kernel of an element-wise operator is made once, and the module is the same as if all were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from nnefc.passes.legalize.element_wise import ELEMENT_WISE
from nnefc.passes.legalize.repeated_calls import repeating


def module(make: Callable[[relax.BlockBuilder, relax.Var, relax.Var], relax.Var], shape: tuple[Any, ...]) -> Any:
    """A module of what `make` emits for two tensors."""
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType(shape, "float32")) for name in "xy")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            result = builder.emit_output(make(builder, x, y))
        builder.emit_func_output(result)
    return builder.finalize()


def times_called(given: tvm.IRModule) -> Counter[str]:
    """How often each legalization is called for a module."""
    called: Counter[str] = Counter()

    def counting(name: str, legalize: Callable[..., Any]) -> Callable[..., Any]:
        def count(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
            called[name.rpartition(".")[2]] += 1
            return legalize(builder, call)

        return count

    once = repeating({name: counting(name, legalize) for name, legalize in ELEMENT_WISE.items()})
    reference = relax.transform.LegalizeOps(ELEMENT_WISE)(given)
    made = relax.transform.LegalizeOps(once)(given)
    assert tvm_ffi.structural_equal(made, reference) and made.script() == reference.script()
    return called


def layers(builder: relax.BlockBuilder, x: relax.Var, y: relax.Var) -> relax.Var:
    """Layers that repeat, with constants of several elements and of one."""
    for layer in range(3):
        x = builder.emit(relax.op.multiply(x, relax.const(np.full((4, 1), layer, np.float32))))
        x = builder.emit(relax.op.nn.relu(relax.op.add(x, x) if layer == 0 else relax.op.add(x, y)))
        x = builder.emit(relax.op.multiply(x, relax.const(np.float32(layer))))
        x = builder.emit(relax.op.maximum(x, relax.const(np.full((4, 1), layer or np.nan, np.float32))))
    return x


def test_calls_on_equal_types_have_one_kernel_that_is_made_once() -> None:
    called = times_called(module(layers, (4, 5)))
    # Constants of one element are in kernels, and those that are known to be numbers have another maximum.
    assert called == {"multiply": 1 + 3, "relu": 1, "maximum": 3}


def test_kernels_of_dynamic_sizes_are_made_for_each_call() -> None:
    called = times_called(module(layers, (4, tvm.tirx.Var("n", "int64"))))
    assert called == {"multiply": 3 + 3, "relu": 3, "maximum": 3}

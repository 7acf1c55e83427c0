"""Conversions to bfloat16 in expressions: TVM drops their rounding unless it is done in float32 before."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import te

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.tvm_workarounds.bfloat16_rounding import round_to_bfloat16

X = np.array([1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, -1e-3], np.float32)
ROUNDED = np.array([1, 1 + 2**-6, np.inf, -0.00099945068359375], np.float32)


def there_and_back(is_safe: bool) -> np.ndarray:
    """What a kernel of TVM makes of `X` that converts to bfloat16 and back."""
    x = te.placeholder((4,), "float32", "x")
    func = te.create_prim_func([x, te.compute((4,), lambda i: x[i].astype("bfloat16").astype("float32"), "y")])
    if is_safe:
        func = with_fields(func, body=round_to_bfloat16(func.body))
    built = tvm.compile(func.with_attr("global_symbol", "main"), target="llvm")
    given, result = tvm.runtime.tensor(X), tvm.runtime.tensor(np.zeros(4, np.float32))
    built(given, result)
    return result.numpy()


def test_results_are_rounded() -> None:
    np.testing.assert_array_equal(there_and_back(is_safe=True), ROUNDED)


def test_tvm_drops_the_rounding() -> None:
    assert (there_and_back(is_safe=False) == X).all(), "TVM does it right: bfloat16_rounding.py can go"

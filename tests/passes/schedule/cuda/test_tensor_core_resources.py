"""Registers that products by tensor cores need with their largest tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import PROCESSOR_REGISTERS, TARGET, kernels, lowered
from emulate import device_code
from tvm import relax
from tvm.relax import op

from nnefc.passes.compute.fp16_matmul import multiply_transposed
from nnefc.targets.codegen.cuda.compiler import compile_image


@pytest.mark.slow
def test_registers_hold_the_largest_tile_of_bytes() -> None:
    def dense(a: relax.Expr, b: relax.Expr) -> relax.Expr:
        sums = relax.BlockBuilder.current().emit_te(multiply_transposed, a, b, "int32")
        return op.astype(
            op.clip(op.round(op.multiply(op.astype(sums, "float32"), relax.const(0.01))), -128, 127), "int8"
        )

    data, weights = np.zeros((4096, 768), "int8"), np.zeros((3072, 768), "int8")
    code = device_code(kernels(lowered(dense, [data], [weights])), TARGET)
    (launch,) = code.launches
    assert launch.block == (128, 1, 1)  # four warps of 64 by 64
    for usage in compile_image(code.source, (80, 90)).usage:
        assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
        assert usage.registers * 128 <= PROCESSOR_REGISTERS // 2


@pytest.mark.slow
def test_registers_hold_the_largest_tile_of_floats_of_8_bits() -> None:
    """With a quantization to such floats, for all architectures that multiply them."""
    target = replace(TARGET, architectures=(89, 90, 100))

    def dense(a: relax.Expr, b: relax.Expr, scales: relax.Expr) -> relax.Expr:
        sums = relax.BlockBuilder.current().emit_te(multiply_transposed, a, b, "float32")
        return op.astype(op.nn.relu(op.multiply(sums, scales)), "float8_e4m3fn")

    data, weights = (np.zeros((size, 768), "float8_e4m3fn") for size in (4096, 3072))
    code = device_code(kernels(lowered(dense, [data], [weights, np.ones(3072, np.float32)]), target), target)
    assert [launch.block for launch in code.launches] == [(128, 1, 1)]  # four warps of 64 by 64
    for usage in compile_image(code.source, (89, 90, 100)).usage:
        assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
        assert usage.registers * 128 <= PROCESSOR_REGISTERS // 2


@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_registers_hold_the_largest_tile_that_is_copied(dtype: str) -> None:
    def dense(a: object, b: object) -> object:
        return op.nn.relu(op.matmul(a, b, out_dtype="float32"))

    data, weights = np.zeros((4096, 768), dtype), np.zeros((768, 3072), dtype)
    code = device_code(kernels(lowered(dense, [data], [weights])), TARGET)
    (launch,) = code.launches
    assert launch.block == (128, 1, 1)  # four warps of 64 by 64
    assert launch.shared_bytes > TARGET.shared_bytes
    for usage in compile_image(code.source, (80, 90)).usage:
        assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
        assert usage.registers * 128 <= PROCESSOR_REGISTERS // 2

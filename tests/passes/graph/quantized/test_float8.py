"""Kernels on codes of floats of 8 bits, found and written as operators."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of
from nnefc.operators.base import Emitter
from nnefc.operators.nn.float8_quantization import Float8Dequantization, Float8Quantization
from nnefc.passes.graph.quantized.float8 import dequantize_float8_constants, name_float8
from nnefc.passes.graph.rewriter import array_of, is_constant

E5M2 = "float8_e5m2"


def program(build: Callable[[Emitter, relax.Var], relax.Expr]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([4, 6], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(Emitter(builder), x))
        builder.emit_func_output(result)
    return builder.finalize()


def operators(mod: tvm.IRModule) -> list[tuple[str, str]]:
    """The operators of a program, and the types of their results."""
    calls = [binding for binding in bindings_of(mod["main"]) if isinstance(binding.value, relax.Call)]
    return [(call.value.op.name.removeprefix("relax."), str(call.var.ty.dtype)) for call in calls]


def test_codes_become_tensors_of_their_type() -> None:
    scales = np.array([0.5, 1, 2, 3, 4, 5], np.float32)

    def build(ctx: Emitter, x: relax.Var) -> relax.Expr:
        codes = ctx.apply(Float8Quantization(axis=1, dtype=E5M2), x, scales)
        return ctx.apply(Float8Dequantization(axis=1, source=E5M2), codes, scales)

    mod = name_float8(program(build))
    assert operators(mod) == [("quantize", E5M2), ("dequantize", "float32")]
    calls = [binding.value for binding in bindings_of(mod["main"])]
    assert all(int(call.attrs.axis) == 1 and np.array_equal(array_of(call.args[1]), scales) for call in calls[:2])


def test_moved_codes_and_other_scales_keep_their_bits() -> None:
    def build(ctx: Emitter, x: relax.Var) -> relax.Expr:
        codes = ctx.apply(Float8Quantization(dtype=E5M2), x, np.array(0.5, np.float32))
        moved = ctx.emit(relax.op.permute_dims(codes, [1, 0]))
        return ctx.apply(Float8Dequantization(source=E5M2), moved, np.array(0.5, np.float32))

    found = operators(name_float8(program(build)))
    quantized, *middle, dequantized = found
    assert (quantized, dequantized) == (("quantize", E5M2), ("dequantize", "float32"))
    assert middle == [("call_tir", "uint8"), ("permute_dims", "uint8"), ("call_tir", E5M2)]


def test_scales_that_are_no_positive_numbers_stay_with_kernels() -> None:
    def build(ctx: Emitter, x: relax.Var) -> relax.Expr:
        return ctx.apply(Float8Quantization(dtype=E5M2), x, np.array(-0.5, np.float32))

    assert operators(name_float8(program(build))) == [("call_tir", "uint8")]


def test_weights_that_nothing_multiplies_become_float32() -> None:
    weights = np.arange(24, dtype=np.uint8).reshape(4, 6).view(ml_dtypes.float8_e4m3fn)
    scales = np.array([1, 2, 3, 4], np.float32)

    def build(ctx: Emitter, x: relax.Var) -> relax.Expr:
        return ctx.emit(relax.op.add(x, ctx.apply(Float8Dequantization(axis=0), weights, scales)))

    mod = dequantize_float8_constants(name_float8(program(build)))
    ((name, _),) = operators(mod)
    added = bindings_of(mod["main"])[0].value.args[1]
    assert name == "add" and is_constant(added)
    assert np.array_equal(array_of(added), weights.astype(np.float32) * scales[:, None])

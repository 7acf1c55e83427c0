"""16-bit floats are computed in float32, and rounded where the model asks for it or must have the type."""

from __future__ import annotations

import numpy as np
import tvm
from relax_programs import network_of, program, summary, target
from tvm import relax

from nnefc.driver.compile import compile_network
from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.precision.promote_fp16 import promote_fp16

HOST = target("llvm")
RANDOM = np.random.default_rng(11)
K, W = (RANDOM.standard_normal(shape).astype(np.float16) for shape in ((16, 3, 3, 3), (16, 5)))
CHAIN = """x: float16[1, 3, 9, 7] -> s, f
c = R.nn.conv2d(x, K, padding=[1, 1, 1, 1])
r = R.nn.relu(c)
m = R.mean(r, axis=[2, 3])
p = R.matmul(m, W, out_dtype="float16")
s = R.nn.softmax(p)
f = R.astype(p, "float32")"""


def _types(module: tvm.IRModule) -> dict[str, str]:
    """The element types of what operators compute, by their names; without conversions and tuples."""
    bindings = bindings_of(module["main"])
    return {
        b.value.op.name.removeprefix("relax."): str(b.var.ty.dtype)
        for b in bindings
        if isinstance(b.value, relax.Call) and isinstance(b.var.ty, relax.TensorType)
    }


def test_operators_compute_in_float32_and_results_have_the_types_of_the_model() -> None:
    module = promote_fp16(program(CHAIN, K=K, W=W))
    types = _types(module)
    del types["astype"]
    assert set(types.values()) == {"float32"}
    assert [str(field.dtype) for field in module["main"].ret_ty.fields] == ["float16", "float32"]


def test_results_are_those_of_float64() -> None:
    x = RANDOM.standard_normal((1, 3, 9, 7)).astype(np.float16)
    made = compile_network(network_of(program(CHAIN, K=K, W=W)), HOST).run({"x": x})
    padded, k = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)]), K.astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    p = np.maximum(np.einsum("nchwij,ocij->nohw", windows, k), 0).mean((2, 3)) @ W.astype(np.float64)
    np.testing.assert_allclose(made["y1"], p, rtol=1e-5, atol=1e-5)
    e = np.exp(p - p.max())
    assert made["y0"].dtype == np.float16
    np.testing.assert_allclose(made["y0"].astype(np.float64), e / e.sum(), rtol=1e-3, atol=1e-7)


def test_conversions_of_the_model_round_and_moves_of_what_is_stored_stay_narrow() -> None:
    text = """x[4]; h: float16[2, 3] -> y, t
a = R.astype(x, "float16")
b = R.multiply(a, R.const(0.5, "float16"))
y = R.astype(b, "float32")
t = R.permute_dims(h)"""
    assert "t[3, 2] = permute_dims(h)" in summary(promote_fp16(program(text)))
    given = {"x": np.array([70000, -1e30, 2049, 1e-9], np.float32), "h": np.ones((2, 3), np.float16)}
    made = compile_network(network_of(program(text)), HOST).run(given)
    np.testing.assert_array_equal(made["y0"], [np.inf, -np.inf, 1024, 0])

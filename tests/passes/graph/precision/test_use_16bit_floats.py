"""What becomes half precision, and what stays single."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from emulated_networks import on_cuda
from small_networks import Net
from tvm import relax, tirx

import nnefc
from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.precision.use_16bit_floats import use_16bit_floats
from nnefc.passes.graph.rewriter import array_of, constant

SHAPE = (1, 4, 6, 6)


def _program(tail: str, scale: float = 1.0) -> tvm.IRModule:
    """A convolution, and after it what `tail` says."""
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    rng = np.random.default_rng(3)
    filters = constant((scale * rng.standard_normal((4, 4, 3, 3))).astype(np.float32))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, filters, padding=1))
            match tail:
                case "convolution":
                    z = builder.emit(relax.op.nn.conv2d(builder.emit(relax.op.nn.relu(y)), filters, padding=1))
                case "residual":
                    z = builder.emit(relax.op.add(y, builder.emit(relax.op.nn.conv2d(y, filters, padding=1))))
                case "softmax":
                    z = builder.emit(relax.op.nn.softmax(y))
                case "slice":
                    begin, end = [tirx.IntImm("int64", size) for size in (0, 2)]
                    part = builder.emit(relax.op.strided_slice(y, [2], [begin], [end]))
                    z = builder.emit(relax.op.nn.conv2d(part, filters, padding=1))
                case "matmul":
                    z = builder.emit(relax.op.matmul(y, builder.emit(relax.op.permute_dims(y, [0, 1, 3, 2]))))
            result = builder.emit_output(z)
        builder.emit_func_output(result)
    return builder.finalize()


def _types(module: tvm.IRModule) -> list[tuple[str, str]]:
    """The operations, and the types of their results."""
    return [
        (binding.value.op.name.removeprefix("relax.").removeprefix("nn."), str(binding.var.ty.dtype))
        for block in module["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    ]


@pytest.mark.parametrize(
    ("tail", "operations"),
    [
        ("convolution", "astype16 conv2d32 astype16 relu16 conv2d32"),
        ("residual", "astype16 conv2d32 astype16 astype32 conv2d32 add32"),
        ("softmax", "astype16 conv2d32 softmax32"),
        ("slice", "astype16 conv2d32 astype16 strided_slice16 conv2d32"),
        ("matmul", "astype16 conv2d32 astype16 permute_dims16 matmul32"),
    ],
)
def test_contractions_read_half_and_give_single_precision(tail: str, operations: str) -> None:
    found = _types(use_16bit_floats(_program(tail), "float16"))
    assert " ".join(f"{name}{dtype.removeprefix('float')}" for name, dtype in found) == operations


def test_trained_values_are_converted_at_once() -> None:
    before, after = _program("softmax"), use_16bit_floats(_program("softmax"), "float16")
    wide, narrow = (_filter_of(module) for module in (before, after))
    assert narrow.dtype == np.float16
    np.testing.assert_array_equal(narrow, wide.astype(np.float16))


def test_what_half_precision_cannot_hold_stays_as_it_is() -> None:
    assert _types(use_16bit_floats(_program("softmax", scale=1e6), "float16")) == [
        ("conv2d", "float32"),
        ("softmax", "float32"),
    ]


def _filter_of(module: tvm.IRModule) -> np.ndarray:
    bindings = bindings_of(module["main"])
    call = next(b.value for b in bindings if isinstance(b.value, relax.Call) and b.value.op.name == "relax.nn.conv2d")
    return array_of(call.args[1])


@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [("fp16", 4e-3), *(pytest.param(*each, marks=pytest.mark.slow) for each in (("bf16", 3e-2), ("tf32", 4e-3)))],
)
@pytest.mark.slow
def test_a_network_is_nearly_the_same_and_not_quite(precision: str, tolerance: float, tmp_path: Path) -> None:
    net = Net(seed=1)
    x = net.floats(1, 16, 8, 8)
    y = net.do("Relu", net.do("Conv", x, net.weight(16, 16, 3, 3), pads=[1, 1, 1, 1]))
    z = net.do("Add", y, net.do("Conv", y, net.weight(16, 16, 1, 1)))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model([z]).SerializeToString())
    (wanted,) = nnefc.compile(path).run(net.inputs).values()
    with on_cuda(precision=precision):
        (found,) = nnefc.compile(path).run(net.inputs).values()
    assert found.dtype == np.float32
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert 0 < error < tolerance

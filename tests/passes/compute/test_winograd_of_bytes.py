"""Winograd's algorithm in int16: the sums of bytes are exact, and it is used where it is faster."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from relax_programs import program, target

import nnefc
from nnefc.passes.compute.winograd import fits_int32, transform_integer_filter
from nnefc.passes.graph.algorithms import choose_algorithms as choosing
from nnefc.passes.graph.algorithms.choose_algorithms import choose_algorithms
from nnefc.targets.machine.cpu.parsing import parse_target


def filters_of(*shape: int) -> np.ndarray:
    """The limits of int8 among random values."""
    rng = np.random.default_rng(5)
    return np.where(rng.random(shape) < 0.3, rng.choice([-128, 127], shape), rng.integers(-128, 128, shape)).astype(
        np.int8
    )


CASES: list[tuple[type, tuple[int, ...], int, list[int]]] = [
    (np.uint8, (1, 16, 8, 8), 16, [1, 1, 1, 1]),
    (np.uint8, (2, 21, 7, 10), 13, [1, 0, 2, 1]),
    (np.int8, (1, 40, 5, 9), 8, [0, 0, 0, 0]),
]


def network() -> onnx.ModelProto:
    """Convolutions side by side, whose padding is their zero point."""
    element = helper.np_dtype_to_tensor_dtype
    nodes, constants, inputs = [], [], []
    for n, (dtype, shape, outputs, pads) in enumerate(CASES):
        constants.append(numpy_helper.from_array(filters_of(outputs, shape[1], 3, 3), f"w{n}"))
        constants.append(numpy_helper.from_array(np.array(7, dtype), f"z{n}"))
        nodes.append(helper.make_node("ConvInteger", [f"x{n}", f"w{n}", f"z{n}"], [f"y{n}"], pads=pads))
        inputs.append(helper.make_tensor_value_info(f"x{n}", element(np.dtype(dtype)), shape))
    results = [helper.make_tensor_value_info(f"y{n}", onnx.TensorProto.INT32, None) for n in range(len(CASES))]
    graph = helper.make_graph(nodes, "winograd", inputs, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_sums_are_exact(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    host = parse_target("llvm")
    if not host.triple.startswith("x86_64") or "avx2" not in host.features:
        pytest.skip("needs AVX2")
    monkeypatch.setattr(choosing, "winograd_saving", lambda *_: 1.0)
    model = network()
    folder = tmp_path_factory.mktemp("dumped")
    library = nnefc.compile(model, target="x86-64-v3", dump=folder)
    kernels = "".join(path.read_text() for path in folder.iterdir() if path.is_file())
    assert all(f"transform_output{n or ''}" in kernels for n in range(len(CASES)))
    reference, loaded = ReferenceEvaluator(model), library.load(threads=1)
    rng = np.random.default_rng(11)
    for largest in (False, True):
        data = {}
        for n, (dtype, shape, *_) in enumerate(CASES):
            limits = np.iinfo(dtype)
            drawn = rng.integers(limits.min, limits.max + 1, shape)
            data[f"x{n}"] = (rng.choice([limits.min, limits.max], shape) if largest else drawn).astype(dtype)
        for expected, found in zip(reference.run(None, data), loaded.run(data).values(), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("channels", "fits"), [(700, True), (760, False)])
def test_sums_that_may_overflow_are_found(channels: int, fits: bool) -> None:
    packed = np.zeros((2, channels // 4, 3, 3, 4, 4), np.int8)
    packed[1, ..., 2] = 127
    assert fits_int32(transform_integer_filter(packed)) == fits


@pytest.mark.parametrize(
    ("machine", "size", "channels", "chosen"),
    [
        ("x86-64-v3", 28, 128, True),
        ("x86-64-v3", 1, 128, False),  # a tile has one result alone
        ("znver4", 28, 128, False),  # `vpdpbusd` makes four products at once
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3 -mattr=+avxvnni", 28, 128, False),
    ],
)
def test_it_is_used_where_it_saves_time(machine: str, size: int, channels: int, chosen: bool) -> None:
    text = f'x: uint8[1, {channels}, {size}, {size}] -> y\ny = R.nn.conv2d(x, W, padding=1, out_dtype="int32")'
    module = program(text, W=filters_of(channels, channels, 3, 3))
    assert [*choose_algorithms([module], target(machine), 4).tiles.values()] == [(2, 2)] * chosen
